"""Small layers of one form, for tests that swap them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.linear import repack

WIDTH = 24


class Block(nn.Module):
    """One of each: packed or not, a buffer, an attribute, a number alone."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.norm.weight)
        self.register_buffer("shift", torch.randn(WIDTH, dtype=torch.float64))
        self.factor = torch.randn(())

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return x + scale * self.second(torch.tanh(self.first(self.norm(x)))) * self.factor + self.shift.float()


class Net(nn.Module):
    def __init__(self, layers: int, packed: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(seed) for seed in range(layers)).eval().requires_grad_(False)
        if packed:
            repack(self)

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, scale=1 + number)
        return x


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(seed))
