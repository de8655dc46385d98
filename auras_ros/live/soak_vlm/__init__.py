"""Asks a server of a vision-language model everything at once, good and bad, and judges every answer."""
