"""`auras bench pipeline`: the four modes side by side."""
