"""In how many digits a GPU multiplies float32: all of them, or TF32's ten where torch allows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_float32() -> Iterator[None]:
    """Convolutions without TF32, which torch takes for them unless told; matrices it multiplies in float32 anyway."""
    import torch

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
