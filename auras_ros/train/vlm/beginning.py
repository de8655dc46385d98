"""Weights to begin with, by which a small vision transformer learns shapes from few pictures.

Positions begin as sines and cosines, and each head of the first layers begins by looking at one neighbour of a patch:
the first layers begin as convolutions do (compare Cordonnier et al. 2020; Trockman and Kolter 2023). Nothing is fixed;
training changes all of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from auras_ros.models.vit import Vit, VitAttention, VitLayer

AMPLITUDE = 2.0  # well above the patches, so that the first looks follow the place and not what is there
SHARPNESS = 1.6  # of a head's first look
NEIGHBOURS = (  # columns and rows, for the heads of each of the first layers
    ((1, 0), (-1, 0), (0, 1), (0, -1)),
    ((1, 1), (-1, -1), (-1, 1), (1, -1)),
    ((2, 0), (-2, 0), (0, 2), (0, -2)),
)


@torch.no_grad()
def look_around(vision: Vit) -> None:
    """Sets position embeddings and the first layers' queries and keys. Its heads must be four, and their width a
    multiple of 4."""
    width, side = vision.config.width, round(vision.patches**0.5)
    frequency = torch.pi / torch.logspace(0.3, 1.5, width // 4)  # half waves of 2 to 32 patches
    vision.pos_embed.copy_(AMPLITUDE * waves(side, frequency))
    layers = [layer for layer in vision.layers if isinstance(layer, VitLayer)]
    for layer, offsets in zip(layers, NEIGHBOURS, strict=False):
        for head, offset in enumerate(offsets):
            _look(layer.attn, head, offset, frequency)


def waves(side: int, frequency: Tensor) -> Tensor:
    """[side * side, 4 * frequencies]: sines and cosines of the column, then of the row. Products of two of them depend
    on the distance alone."""
    angle = torch.arange(side)[:, None] * frequency
    one = torch.cat([angle.sin(), angle.cos()], 1)
    return torch.cat([one.expand(side, -1, -1), one[:, None].expand(-1, side, -1)], -1).flatten(0, 1)


def _look(attention: VitAttention, head: int, offset: tuple[int, int], frequency: Tensor) -> None:
    """The head's queries are some of the waves; its keys are the same, turned back by the offset: their product is
    largest where the key's patch is the query's, moved by the offset."""
    width, size = attention.proj.in_features, attention.proj.in_features // attention.heads
    count = len(frequency)
    chosen = torch.linspace(0, count - 1, size // 4).round().long()
    query, key = torch.zeros(size, width), torch.zeros(size, width)
    for axis in range(2):
        sine, cosine = 2 * axis * count + chosen, (2 * axis + 1) * count + chosen
        rows = 2 * axis * len(chosen) + torch.arange(len(chosen))
        turn = offset[axis] * frequency[chosen]
        query[rows, sine], query[rows + len(chosen), cosine] = 1.0, 1.0
        key[rows, sine], key[rows, cosine] = turn.cos(), -turn.sin()
        key[rows + len(chosen), cosine], key[rows + len(chosen), sine] = turn.cos(), turn.sin()
    first = head * size
    attention.qkv.weight[first : first + size] = SHARPNESS * query
    attention.qkv.weight[width + first : width + first + size] = SHARPNESS * key
