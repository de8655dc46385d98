"""The command line: `auras run`, `auras demo` and so on. Each command is a file with `run(argv)`."""
