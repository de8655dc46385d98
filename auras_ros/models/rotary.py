"""Rotary position embeddings (Su et al. 2021) in the Hugging Face Llama's half-split layout, with Llama 3's scaling.

Nothing here is learned or stored: frequencies are recomputed in each forward, in float32. A table would lose its
precision if the model is cast, and its values if the model is made on the meta device and filled afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's stretching of long wavelengths (Grattafiori et al. 2024).

    Wavelengths above original_positions / low_freq_factor grow by `factor`, those below original_positions /
    high_freq_factor stay, those between are interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise ValueError(f"llama3 rope scaling: factor: {self.factor} is less than 1")
        if not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"llama3 rope scaling: low_freq_factor {self.low_freq_factor} and high_freq_factor "
                f"{self.high_freq_factor} are not positive and in rising order"
            )


def rotary(
    positions: Tensor,
    rotated: int,
    theta: float,
    scaling: RopeScaling | None,
    dtype: torch.dtype,
    sections: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions [T] or [B, T]: each [T, rotated] or [B, 1, T, rotated]. rotated: numbers of a head
    that are rotated.

    sections: M-RoPE (Wang et al. 2024, 2.1): positions have a first dimension of 3 (time, height, width), and the
    frequencies are divided into sections of these sizes, which take one of the three in turn.
    """
    exponent = torch.arange(0, rotated, 2, device=positions.device).float() / rotated
    frequency = 1.0 / theta**exponent
    if scaling is not None:
        frequency = _stretched(frequency, scaling)
    angle = positions.float()[..., None] * frequency
    if sections:
        angle = torch.cat([part[i % 3] for i, part in enumerate(angle.split(sections, -1))], -1)
    angle = torch.cat([angle, angle], -1)
    if angle.dim() == 3:
        angle = angle[:, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys [B, heads, T, head_dim], each pair (i, i + rotated / 2) of the first `rotated` numbers rotated by
    its angle; the rest of a head stays."""
    cosine, sine = angles
    rotated = cosine.shape[-1]
    if rotated < x.shape[-1]:
        return torch.cat([rotate(x[..., :rotated], angles), x[..., rotated:]], -1)
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def _stretched(frequency: Tensor, scaling: RopeScaling) -> Tensor:
    turns = scaling.original_positions * frequency / (2 * math.pi)  # within the original length
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0, 1)
    return (1 - kept) * frequency / scaling.factor + kept * frequency
