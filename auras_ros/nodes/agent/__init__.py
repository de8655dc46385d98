"""The agent's process: observations in, chunks out. Nothing is imported here."""
