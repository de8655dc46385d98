"""ACT's transformer as in LeRobot (Zhao et al. 2023): images and state to a memory, a memory to actions.

Inference only: the latent of the variational encoder is zero, as published, so its embedding is a constant and that
encoder is not built. The memory is the encoded observation; the decoder reads it once for the whole chunk. Parameter
names are LeRobot's, except those of the backbone, which are `models.resnet`'s. This module never normalises pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auras_ros.models.blocks import Block, Blocks, alone, carrying, chain
from auras_ros.models.resnet import ResNet18

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
TEMPERATURE = 10_000.0


@dataclass(frozen=True)
class ActConfig:
    """Sizes. width: the model's; hidden: of the feed-forward layers; latent: of the variational encoder's vector.

    Raises ValueError, naming the size.
    """

    width: int = 512
    heads: int = 8
    hidden: int = 3200
    encoder_layers: int = 4
    decoder_layers: int = 1
    latent: int = 32
    activation: str = "relu"
    pre_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "heads", "hidden", "encoder_layers", "decoder_layers", "latent"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"act: {name}: {value!r} is not a whole number above zero")
        if self.width % self.heads or self.width % 4:
            raise ValueError(f"act: width: {self.width} is not a multiple of 4 and of heads, {self.heads}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"act: activation: {self.activation!r} is not known; known: {', '.join(ACTIVATIONS)}")
        if type(self.pre_norm) is not bool:
            raise ValueError(f"act: pre_norm: {self.pre_norm!r} is not true or false")


class ActEncoderLayer(nn.Module):
    """Tokens [B, T, width] with positions [1, T, width] -> [B, T, width]. Positions go only into queries and keys."""

    def __init__(self, config: ActConfig) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(config.width, config.heads, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self._activation, self._pre_norm = ACTIVATIONS[config.activation], config.pre_norm

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = _residual(x, lambda y: _attend(self.self_attn, y + positions, y + positions, y), self.norm1, self._pre_norm)
        return _residual(x, lambda y: _feed(self, y), self.norm2, self._pre_norm)


class ActDecoderLayer(nn.Module):
    """Queries [B, H, width] that attend to each other and to a memory [B, T, width] -> [B, H, width]."""

    def __init__(self, config: ActConfig) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(config.width, config.heads, batch_first=True)
        self.multihead_attn = nn.MultiheadAttention(config.width, config.heads, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(config.width) for _ in range(3))
        self._activation, self._pre_norm = ACTIVATIONS[config.activation], config.pre_norm

    def forward(self, x: Tensor, queries: Tensor, memory: Tensor, positions: Tensor) -> Tensor:
        """queries: positions of the actions, [1, H, width]; positions: of the memory, [1, T, width]."""
        own, seen, keys = self.self_attn, self.multihead_attn, memory + positions
        x = _residual(x, lambda y: _attend(own, y + queries, y + queries, y), self.norm1, self._pre_norm)
        x = _residual(x, lambda y: _attend(seen, y + queries, keys, memory), self.norm2, self._pre_norm)
        return _residual(x, lambda y: _feed(self, y), self.norm3, self._pre_norm)


class ActEncoder(nn.Module):
    """Images [B, cameras, 3, h, w] and the newest state [B, D] -> memory [B, T, width].

    T: one token for the latent, one for the state if there is one, then the places of each camera's feature map, row by
    row. image_px: (height, width) of the images; the positions of their places are computed once.
    """

    positions_2d: Tensor

    def __init__(
        self, config: ActConfig, backbone: ResNet18, cameras: int, state: int, image_px: tuple[int, int]
    ) -> None:
        super().__init__()
        self.config, self.cameras, self.state = config, cameras, state
        self.backbone = backbone
        self.encoder_latent_input_proj = nn.Linear(config.latent, config.width)
        if state:
            self.encoder_robot_state_input_proj = nn.Linear(state, config.width)
        self.encoder_img_feat_input_proj = nn.Conv2d(backbone.channels, config.width, 1)
        self.encoder_1d_feature_pos_embed = nn.Embedding(1 + bool(state), config.width)
        self.layers = nn.ModuleList([ActEncoderLayer(config) for _ in range(config.encoder_layers)])
        self.norm = nn.LayerNorm(config.width) if config.pre_norm else nn.Identity()
        height, width = (-(-side // 32) for side in image_px)
        self.register_buffer("positions_2d", positions_2d(height, width, config.width), persistent=False)

    def positions(self) -> Tensor:
        """Positions of the memory's tokens, [1, T, width]."""
        flat = self.encoder_1d_feature_pos_embed.weight
        return torch.cat([flat, self.positions_2d.repeat(self.cameras, 1).to(flat.dtype)])[None]

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return chain(self.blocks(), images, state)

    def blocks(self) -> Blocks:
        """Consecutive parts, by name; the first takes (images, state), the last gives the memory."""
        seeing = [(f"backbone.{name}", carrying(block)) for name, block in self.backbone.blocks()]
        layers = [(f"layers.{i}", self._layer(layer)) for i, layer in enumerate(self.layers)]
        flatten = carrying(lambda images: (images.flatten(0, 1),))
        return [("cameras", flatten), *seeing, ("tokens", self._tokens), *layers, ("norm", alone(self.norm))]

    def _layer(self, layer: nn.Module) -> Block:
        return lambda x: (layer(x, self.positions()),)

    def _tokens(self, maps: Tensor, state: Tensor) -> tuple[Tensor]:
        latent = self.encoder_latent_input_proj(maps.new_zeros(len(state), self.config.latent))
        seen = self.encoder_img_feat_input_proj(maps).flatten(2).transpose(1, 2)
        seen = seen.reshape(len(state), -1, self.config.width)
        own = [self.encoder_robot_state_input_proj(state)[:, None]] if self.state else []
        return (torch.cat([latent[:, None], *own, seen], 1),)


class ActDecoder(nn.Module):
    """A memory [B, T, width] with its positions -> actions [B, horizon, actions], in one pass."""

    def __init__(self, config: ActConfig, horizon: int, actions: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ActDecoderLayer(config) for _ in range(config.decoder_layers)])
        self.norm = nn.LayerNorm(config.width)
        self.decoder_pos_embed = nn.Embedding(horizon, config.width)
        self.action_head = nn.Linear(config.width, actions)

    def forward(self, memory: Tensor, positions: Tensor) -> Tensor:
        queries = self.decoder_pos_embed.weight[None]
        x = queries.new_zeros(len(memory), *queries.shape[1:])
        for layer in self.layers:
            x = layer(x, queries, memory, positions)
        out: Tensor = self.action_head(self.norm(x))
        return out


def positions_2d(height: int, width: int, size: int) -> Tensor:
    """Sinusoidal positions of the places of a map, row by row: float32 [height * width, size], rows in the first half.

    Places count from 1 and are scaled so that the last one is two pi: DETR's encoding (Carion et al. 2020).
    """
    steps = torch.arange(size // 2, dtype=torch.float32)
    frequency = TEMPERATURE ** (2 * (steps // 2) / (size // 2))
    down, across = ((torch.arange(side) + 1.0) / (side + 1e-6) * 2 * math.pi for side in (height, width))
    rows, columns = (_waves(angle[:, None] / frequency) for angle in (down, across))
    grid = torch.cat([rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)], -1)
    return grid.reshape(height * width, size)


def _waves(angles: Tensor) -> Tensor:
    return torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], -1).flatten(1)


def _attend(attention: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    out: Tensor = attention(query, key, value, need_weights=False)[0]
    return out


def _feed(layer: ActEncoderLayer | ActDecoderLayer, x: Tensor) -> Tensor:
    out: Tensor = layer.linear2(layer._activation(layer.linear1(x)))
    return out


def _residual(x: Tensor, body: Callable[[Tensor], Tensor], norm: nn.Module, pre_norm: bool) -> Tensor:
    out: Tensor = x + body(norm(x)) if pre_norm else norm(x + body(x))
    return out
