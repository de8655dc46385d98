"""The one refusal of whoever reads a checkpoint: its text names the file, the key or the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the text names the file, key or tensor."""


@contextmanager
def refusing(where: object, *kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds that are raised in here refuse the checkpoint; the text begins with `where`."""
    try:
        yield
    except CheckpointError:  # which is a ValueError, and says where already
        raise
    except kinds as error:
        raise CheckpointError(f"{where}: {error}") from error
