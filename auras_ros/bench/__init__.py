"""One file for each figure: a claim, measured on this machine. Never imported by a running robot."""
