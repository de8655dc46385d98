"""The 1-D U-Net of Diffusion Policy at its published size (Chi et al. 2023, section 3.1): the noise network of DP-CNN.

`unet1d` holds the small one that ships with the Push-T policy. Parameter names are those of the published code, so
that its weights fit by name. Convolutions run along the horizon; observation and timestep modulate every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import named
from auras_ros.models.convolution import Conv1d, ConvTranspose1d
from auras_ros.models.sinusoid import Sinusoid

FILMS = ("scale_shift", "shift")


def conv_block(inputs: int, outputs: int, kernel: int, groups: int) -> nn.Sequential:
    """Convolution, group normalisation, Mish: [B, inputs, T] -> [B, outputs, T]."""
    conv = Conv1d(inputs, outputs, kernel, padding=kernel // 2)
    return named(block=nn.Sequential(conv, nn.GroupNorm(groups, outputs), nn.Mish()))


class FilmResidualBlock(nn.Module):
    """Two convolutions and a shortcut; between the two, the condition [B, C] scales and shifts each channel (FiLM), or
    only shifts it."""

    def __init__(
        self, inputs: int, outputs: int, condition: int, kernel: int, groups: int, film: str = "scale_shift"
    ) -> None:
        super().__init__()
        self._scales = film == "scale_shift"
        parts = conv_block(inputs, outputs, kernel, groups), conv_block(outputs, outputs, kernel, groups)
        self.blocks = nn.ModuleList(parts)
        self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(condition, (1 + self._scales) * outputs))
        self.residual_conv = Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        modulation, hidden = self.cond_encoder(condition).unsqueeze(-1), self.blocks[0](x)
        if self._scales:
            scale, shift = modulation.chunk(2, 1)
            hidden = scale * hidden + shift
        else:
            hidden = hidden + modulation
        out: Tensor = self.blocks[1](hidden) + self.residual_conv(x)
        return out


@dataclass(frozen=True)
class UnetSizes:
    """down_dims: channels of each scale, multiples of `groups`. kernel: odd. step_width: of the timestep's embedding.
    film: "scale_shift" or "shift". final_groups: of the last block, `groups` unless given (published code always has 8
    there). Raises ValueError, naming the size."""

    down_dims: Sequence[int] = (512, 1024, 2048)
    kernel: int = 5
    groups: int = 8
    step_width: int = 128
    film: str = "scale_shift"
    final_groups: int | None = None

    def __post_init__(self) -> None:
        dims, final = list(self.down_dims), self.last_groups
        if self.film not in FILMS:
            raise ValueError(f"conditional_unet1d: film: '{self.film}' is not known; known: {', '.join(FILMS)}")
        if len(dims) < 2:
            raise ValueError(f"conditional_unet1d: down_dims: {dims} has fewer than two scales")
        for size, name, groups in (*((size, "groups", self.groups) for size in dims), (dims[0], "final_groups", final)):
            if size % groups:
                raise ValueError(f"conditional_unet1d: down_dims: {size} is not a multiple of {name}, {groups}")
        if self.kernel % 2 == 0:
            raise ValueError(f"conditional_unet1d: kernel: {self.kernel} is not odd")

    @property
    def last_groups(self) -> int:
        """Groups of the last block."""
        return self.groups if self.final_groups is None else self.final_groups


class DiffusionUnet1d(nn.Module):
    """(noisy actions [B, horizon, actions], timestep [B], condition [B, condition]) -> [B, horizon, actions].

    The horizon must be a multiple of `horizon_multiple`.
    """

    def __init__(self, actions: int, condition: int, sizes: UnetSizes) -> None:
        super().__init__()
        dims, kernel, groups, final = list(sizes.down_dims), sizes.kernel, sizes.groups, sizes.last_groups
        self.sizes = {"type": "conditional_unet1d", **asdict(sizes), "down_dims": dims, "final_groups": final}
        self.horizon_multiple: int = 2 ** (len(dims) - 1)
        modulating = sizes.step_width + condition

        def block(inputs: int, outputs: int) -> FilmResidualBlock:
            return FilmResidualBlock(inputs, outputs, modulating, kernel, groups, sizes.film)

        def level(inputs: int, outputs: int, resample: nn.Module) -> nn.ModuleList:
            return nn.ModuleList([block(inputs, outputs), block(outputs, outputs), resample])

        width = sizes.step_width
        self.diffusion_step_encoder = nn.Sequential(
            Sinusoid(width), nn.Linear(width, 4 * width), nn.Mish(), nn.Linear(4 * width, width)
        )
        self.mid_modules = nn.ModuleList([block(dims[-1], dims[-1]), block(dims[-1], dims[-1])])
        self.down_modules, self.up_modules = nn.ModuleList(), nn.ModuleList()
        for i, (inputs, outputs) in enumerate(zip([actions, *dims], dims, strict=False)):
            last = i + 1 == len(dims)
            halve = nn.Identity() if last else named(conv=Conv1d(outputs, outputs, 3, 2, 1))
            self.down_modules.append(level(inputs, outputs, halve))
        for upper, lower in zip(dims[-2::-1], dims[:0:-1], strict=True):
            double = named(conv=ConvTranspose1d(upper, upper, 4, 2, 1))
            self.up_modules.append(level(2 * lower, upper, double))
        self.final_conv = nn.Sequential(conv_block(dims[0], dims[0], kernel, final), Conv1d(dims[0], actions, 1))

    def forward(self, x: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
        sinusoid, *layers = self.diffusion_step_encoder
        step = sinusoid(timestep).to(x.dtype)
        for layer in layers:
            step = layer(step)
        film = torch.cat([step, condition], -1)
        x, skips = x.transpose(1, 2), []
        for level in self.down_modules:
            first, second, halve = cast(nn.ModuleList, level)
            x = second(first(x, film), film)
            skips.append(x)
            x = halve(x)
        for middle in self.mid_modules:
            x = middle(x, film)
        for level in self.up_modules:
            first, second, double = cast(nn.ModuleList, level)
            x = double(second(first(torch.cat([x, skips.pop()], 1), film), film))
        out: Tensor = self.final_conv(x).transpose(1, 2)
        return out
