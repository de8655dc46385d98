"""Lockstep evaluation: the world and the runtime advance together, step by step, on a virtual clock."""
