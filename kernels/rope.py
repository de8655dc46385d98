"""Rotary positions applied to queries and keys in place (Nova IV).

Published models rotate number i of a head together with number i + r / 2. Here the two stand side by side, so that a
rotation is one product of complex numbers: whoever takes published weights over puts them in `pair_order`, those of
queries and keys alike. A score is a sum over a head's numbers, and their order does not change it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pair_order(size: int, rotated: int) -> Tensor:
    """Which number of a published head of this size stands where: int64 [size]. rotated: its first r numbers."""
    pairs = torch.arange(rotated).view(2, -1).T.flatten()
    return torch.cat([pairs, torch.arange(rotated, size)])


def rotate_(heads: Tensor, turns: Tensor) -> None:
    """heads [T, H, d]: each pair (2i, 2i + 1) of a head's first r numbers is rotated; the rest stays. turns: complex64
    [T, 1, r / 2], cosine + i sine. Numbers in half precision are rotated in float32 and rounded once."""
    part = heads[..., : 2 * turns.shape[-1]]
    wide = part.float()
    torch.view_as_complex(wide.unflatten(-1, (-1, 2))).mul_(turns)
    if part.dtype != torch.float32:
        part.copy_(wide)
