"""A world in a process of its own: the end that plays, and the end that is played in."""
