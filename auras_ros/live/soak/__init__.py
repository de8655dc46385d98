"""Breaks the live loop on purpose, at random from a seed, and judges what comes over the wire while it does."""
