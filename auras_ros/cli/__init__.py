"""The command line: `auras run | demo | sim | train | bench | doctor`. Each command is a file with `run(argv)`."""
