"""One file a figure: what is claimed somewhere, measured on this machine. Never imported by a running robot."""
