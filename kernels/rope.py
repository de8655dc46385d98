"""Rotary positions applied to queries and keys in place (Nova IV)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate_(heads: Tensor, angles: tuple[Tensor, Tensor]) -> None:
    """heads [T, H, d]: each pair (i, i + r / 2) of a head's first r numbers is rotated; the rest stays. angles: cosines
    and sines [T, 1, r], the first half of the sines with the opposite sign."""
    cosine, sine = angles
    rotated = cosine.shape[-1]
    part = heads[..., :rotated]
    part.copy_(torch.addcmul(part * cosine, part.roll(rotated // 2, -1), sine))
