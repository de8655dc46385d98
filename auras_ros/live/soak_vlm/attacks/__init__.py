"""Attacks on a server, each a named function that goes on until it is told to stop."""
