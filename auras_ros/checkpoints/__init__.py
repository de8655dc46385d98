"""Reads model folders of any library, within size limits; errors name the file and what is wrong."""
