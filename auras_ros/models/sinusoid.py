"""The sinusoidal embedding of a diffusion timestep, as the published networks use it. Nothing here is learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Sinusoid(nn.Module):
    """Timesteps [B] -> [B, width]: sines, then cosines, of frequencies falling from 1 to 1/10000.

    `width` is even and at least 4. The frequencies are not weights and are not saved.
    """

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 4 or width % 2:
            raise ValueError(f"timestep embedding: width {width} is not an even number of at least 4")
        exponent = torch.arange(width // 2) / (width // 2 - 1)
        self.register_buffer("frequencies", torch.exp(-math.log(10000.0) * exponent), persistent=False)

    def forward(self, timestep: Tensor) -> Tensor:
        angle = timestep.to(self.frequencies.dtype)[:, None] * self.frequencies
        return torch.cat([angle.sin(), angle.cos()], -1)
