"""Any Gymnasium environment as a world, by a file that describes it."""
