"""The figures of the Auras paper as commands: one file a figure, the paper's numbers beside ours in each."""
