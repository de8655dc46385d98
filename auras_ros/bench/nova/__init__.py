"""Nova's comparisons: one file for each, `auras bench nova-…`."""
