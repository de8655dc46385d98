"""The error for a checkpoint that cannot be used: it names the file, the key or the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the text names the file, key or tensor."""


@contextmanager
def refusing(where: object, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds, raised inside, into a CheckpointError; its text begins with `where`."""
    try:
        yield
    except CheckpointError:  # a ValueError that already names the place
        raise
    except kinds as error:
        raise CheckpointError(f"{where}: {error}") from error
