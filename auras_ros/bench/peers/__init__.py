"""`auras bench peers`: other libraries compared with ours, on the same random weights and in one run."""
