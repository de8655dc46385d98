"""A child process in a Python environment of its own: who starts it, the program in it, the wire between them."""
