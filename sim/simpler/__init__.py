"""Worlds of SimplerEnv: its tasks, both of its evaluations, and what the numbers of an action mean."""
