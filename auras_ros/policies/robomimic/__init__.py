"""A checkpoint that robomimic itself plays, as a process in its environment: the family, and the other end."""
