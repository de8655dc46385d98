"""Worlds of robosuite, in an environment of its own: Lift, its moving table, and the other tasks of robomimic."""
