"""A small conditional 1-D U-Net over the action horizon (the noise network of Diffusion Policy, scaled down).

Convolutions run along the horizon; observation features and the diffusion timestep modulate every block (FiLM).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.convolution import Conv1d, ConvTranspose1d
from auras_ros.models.sinusoid import Sinusoid


class TimestepEmbedding(nn.Module):
    """Sinusoidal embedding of the diffusion timestep, [B] -> [B, width], then a two-layer MLP."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.sinusoid = Sinusoid(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.Mish(), nn.Linear(2 * width, width))

    def forward(self, timestep: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        embedded: Tensor = self.mlp(self.sinusoid(timestep).to(dtype))
        return embedded


class FilmBlock(nn.Module):
    """Two convolutions with a residual; the condition scales and shifts the middle."""

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Sequential(Conv1d(inputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.Mish())
        self.second = nn.Sequential(Conv1d(outputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.Mish())
        self.film = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * outputs))
        self.residual = Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.film(condition).unsqueeze(-1).chunk(2, 1)
        out: Tensor = self.second(self.first(x) * (1 + scale) + shift) + self.residual(x)
        return out


class ConditionalUnet1d(nn.Module):
    """(noisy actions [B, horizon, actions], timestep [B], condition [B, condition]) -> [B, horizon, actions].

    horizon must be divisible by 4 (two downsamplings).
    """

    def __init__(self, actions: int, condition: int, widths: tuple[int, int, int] = (64, 128, 192)) -> None:
        super().__init__()
        low, middle, high = widths
        time_width, observation_width = 64, 192
        film = time_width + observation_width
        self.timestep = TimestepEmbedding(time_width)
        self.observation = nn.Sequential(nn.Linear(condition, 256), nn.Mish(), nn.Linear(256, observation_width))
        self.down1, self.shrink1 = FilmBlock(actions, low, film), Conv1d(low, low, 3, 2, 1)
        self.down2, self.shrink2 = FilmBlock(low, middle, film), Conv1d(middle, middle, 3, 2, 1)
        self.bottom1, self.bottom2 = FilmBlock(middle, high, film), FilmBlock(high, high, film)
        self.grow2, self.up2 = ConvTranspose1d(high, middle, 4, 2, 1), FilmBlock(2 * middle, middle, film)
        self.grow1, self.up1 = ConvTranspose1d(middle, low, 4, 2, 1), FilmBlock(2 * low, low, film)
        self.out = Conv1d(low, actions, 1)
        self.sizes = {"widths": list(widths)}

    def forward(self, x: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
        film = torch.cat([self.timestep(timestep, x.dtype), self.observation(condition)], -1)
        first = self.down1(x.transpose(1, 2), film)
        second = self.down2(self.shrink1(first), film)
        bottom = self.bottom2(self.bottom1(self.shrink2(second), film), film)
        up = self.up2(torch.cat([self.grow2(bottom), second], 1), film)
        up = self.up1(torch.cat([self.grow1(up), first], 1), film)
        out: Tensor = self.out(up).transpose(1, 2)
        return out
