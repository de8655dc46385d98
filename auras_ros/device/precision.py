"""In how many digits a GPU multiplies float32: all of them, or TF32's ten where torch allows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_float32() -> Iterator[None]:
    """Without TF32, which torch takes for convolutions unless told, and for matrices if told."""
    import torch

    convolutions, matrices = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, matrices.allow_tf32
    convolutions.allow_tf32 = matrices.allow_tf32 = False
    try:
        yield
    finally:
        convolutions.allow_tf32, matrices.allow_tf32 = before
