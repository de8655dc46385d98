"""The one refusal of whoever reads a checkpoint: its text names the file, the key or the tensor."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the text names the file, key or tensor."""
