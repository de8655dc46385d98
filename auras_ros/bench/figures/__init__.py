"""The figures of the Auras paper as commands: one file for each figure, with the paper's numbers beside ours."""
