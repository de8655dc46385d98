"""A world in a process of its own: the end that plays, the program at the other end, the wire between them."""
