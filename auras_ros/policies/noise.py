"""The noise tape: what randomness a request gets, from its seed and number alone (design rule 7).

Drawn on the CPU, so that every mode and every device sees the same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor


def noise_tape(shape: tuple[int, ...], seed: int, request: int) -> Tensor:
    """Standard normal float32 of `shape` for one request. seed: 0 to 2**31 - 1; request: 0 to 2**32 - 1."""
    if not 0 <= seed < 2**31 or not 0 <= request < 2**32:
        raise ValueError(f"seed must be in [0, 2**31) and request in [0, 2**32), got {seed} and {request}")
    return torch.randn(shape, generator=torch.Generator().manual_seed((seed << 32) + request))
