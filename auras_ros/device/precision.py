"""The precision of float32 products on a GPU: full, or TF32's ten bits of mantissa where torch allows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_float32() -> Iterator[None]:
    """Without TF32, which torch uses for convolutions by default, and for matrix products if it is enabled."""
    import torch

    convolutions, matrices = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, matrices.allow_tf32
    convolutions.allow_tf32 = matrices.allow_tf32 = False
    try:
        yield
    finally:
        convolutions.allow_tf32, matrices.allow_tf32 = before
