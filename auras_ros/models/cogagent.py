"""CogAgent's form at the sizes of Nova's table II: a high-resolution EVA2-CLIP-E tower, which a GLM-4 decoder reads
twice.

As tokens: squares of 2 x 2 patches are joined by a convolution, pass gated linear layers, and stand in the sequence
between two learned vectors (GLM-4V). And by cross-attention: after its self-attention each layer attends to all patches
of the images that begin before the token (CogAgent, Hong et al. 2024, 3.1). Nova's authors used a later CogAgent whose
code has the first way alone; no public loader has both, so the folder's form is ours (docs/vlm.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.kv_cache import Attend, KVCache, attention, within
from auras_ros.models.llama import Llama, LlamaAttention, LlamaConfig, LlamaDecoderLayer, RmsNorm
from auras_ros.models.vit import Vit, VitConfig
from auras_ros.models.vlm import Grid, ImageEmbeddings, Vlm

JOINED = 2  # side of the squares of patches that become one token
Look = Callable[[int, Tensor], Tensor]
"""(layer, query [B, heads, T, d]) -> [B, heads, T, d]: what the tokens see of the images; zero without one."""


@dataclass(frozen=True)
class CogAgentConfig:
    """adapter: width inside the gated linear layers. cross_width, cross_heads: of the cross-attention. Raises
    ValueError, naming the size."""

    vision: VitConfig
    language: LlamaConfig
    adapter: int
    cross_width: int
    cross_heads: int

    def __post_init__(self) -> None:
        for name in ("adapter", "cross_width", "cross_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"cogagent: {name}: {getattr(self, name)} is less than 1")
        if self.cross_width % self.cross_heads:
            raise ValueError(
                f"cogagent: cross_width: {self.cross_width} is not a multiple of cross_heads, {self.cross_heads}"
            )
        side = self.vision.image_px // self.vision.patch_px
        if side % JOINED:
            raise ValueError(f"cogagent: {side} patches of a side are not a multiple of {JOINED}")

    @property
    def tokens(self) -> int:
        """Embeddings of an image: the joined patches, and the vectors before and after them."""
        return self.vision.patches // JOINED**2 + 2


class CogAgentAdapter(nn.Module):
    """Patches [N, patches, features] -> tokens [N, tokens, width]."""

    def __init__(self, config: CogAgentConfig) -> None:
        super().__init__()
        features, width = config.vision.width, config.language.width
        self.conv = nn.Conv2d(features, width, JOINED, JOINED)
        self.linear_proj = nn.Linear(width, width, bias=False)
        self.norm1 = nn.LayerNorm(width)
        self.gate_proj, self.dense_h_to_4h = (nn.Linear(width, config.adapter, bias=False) for _ in range(2))
        self.dense_4h_to_h = nn.Linear(config.adapter, width, bias=False)
        self.boi, self.eoi = (nn.Parameter(torch.zeros(1, 1, width)) for _ in range(2))

    def forward(self, patches: Tensor) -> Tensor:
        side = int(patches.shape[1] ** 0.5)
        joined = self.conv(patches.transpose(1, 2).unflatten(-1, (side, side))).flatten(2).transpose(1, 2)
        x = F.gelu(self.norm1(self.linear_proj(joined)))
        x = self.dense_4h_to_h(F.silu(self.gate_proj(x)) * self.dense_h_to_4h(x))
        return torch.cat([self.boi.expand(len(x), -1, -1), x, self.eoi.expand(len(x), -1, -1)], 1)


class ImageAttention(nn.Module):
    """Queries of the tokens, keys and values of the patches. No bias at the end: a token that sees no image adds
    nothing."""

    def __init__(self, config: CogAgentConfig) -> None:
        super().__init__()
        self.heads, cross = config.cross_heads, config.cross_width
        self.q_proj = nn.Linear(config.language.width, cross, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(config.vision.width, cross, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(cross, config.language.width, bias=False)

    def keys(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Patches [N, features] -> keys and values [heads, N, d]."""
        key, value = (
            each(patches).unflatten(-1, (self.heads, -1)).transpose(0, 1) for each in (self.k_proj, self.v_proj)
        )
        return key, value

    def forward(self, x: Tensor, look: Callable[[Tensor], Tensor]) -> Tensor:
        query = self.q_proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        out: Tensor = self.o_proj(look(query).transpose(1, 2).flatten(2))
        return out


class CogAgentLayer(LlamaDecoderLayer):
    """Self-attention, attention to the images, gated linear layers."""

    def __init__(self, config: CogAgentConfig, layer: int) -> None:
        super().__init__(config.language, LlamaAttention(config.language, layer))
        self.layer, self.cross_attn = layer, ImageAttention(config)
        self.post_cross_attention_layernorm = RmsNorm(config.language.width, config.language.norm_eps)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], attend: Attend, look: Look) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, attend)
        x = x + self.cross_attn(self.post_cross_attention_layernorm(x), lambda query: look(self.layer, query))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class CogAgentDecoder(Llama):
    """GLM-4 with attention to images in each layer."""

    def __init__(self, config: CogAgentConfig) -> None:
        super().__init__(config.language)
        self.layers = nn.ModuleList(CogAgentLayer(config, i) for i in range(config.language.layers))

    def image_keys(self, patches: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Each layer's keys and values of an image's patches [N, features]."""
        found = (layer.cross_attn for layer in self.layers)
        return tuple(each.keys(patches) for each in found if isinstance(each, ImageAttention))

    def forward(  # type: ignore[override]
        self,
        embeddings: Tensor,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        look: Look | None = None,
    ) -> Tensor:
        """As `Llama`; look: what the tokens see of the images, nothing unless given."""
        if positions is None:
            positions = torch.arange(embeddings.shape[1], device=embeddings.device)
        attend = within() if cache is None else cache.at(positions)
        x, angles = embeddings, self.angles(positions, embeddings.dtype)
        for layer in self.layers:
            x = layer(x, angles, attend, look or blind)
        hidden: Tensor = self.norm(x)
        return hidden


class CogAgent(Vlm):
    """See the module."""

    language: CogAgentDecoder

    def __init__(self, config: CogAgentConfig) -> None:
        super().__init__()
        self.config = config
        self.vision, self.adapter = Vit(config.vision), CogAgentAdapter(config)
        self.language = CogAgentDecoder(config)

    def see(self, pixels: Tensor, grids: Sequence[Grid]) -> list[ImageEmbeddings]:
        """pixels: images [N, 3, px, px]."""
        patches = self.vision(pixels)
        return [
            ImageEmbeddings(tokens, self.language.image_keys(own))
            for tokens, own in zip(self.adapter(patches), patches, strict=True)
        ]


def blind(_layer: int, query: Tensor) -> Tensor:
    """A `Look` without images."""
    return torch.zeros_like(query)


def looking(images: Sequence[ImageEmbeddings], starts: Sequence[int], positions: Tensor) -> Look:
    """A `Look` of one sequence's tokens. starts: the position of each image's first token, rising; positions: int64 [T]
    of the tokens. A token sees the images that begin at or before its position."""
    if not images:
        return blind
    lengths = [image.keys[0][0].shape[1] for image in images]
    first = torch.tensor(starts, device=positions.device).repeat_interleave(
        torch.tensor(lengths, device=positions.device)
    )
    visible = (first <= positions[:, None])[None, None]

    def look(layer: int, query: Tensor) -> Tensor:
        key, value = (torch.cat([image.keys[layer][part] for image in images], 1)[None] for part in (0, 1))
        seen = attention(query, key, value, visible)
        return seen.masked_fill(~visible.any(-1, keepdim=True), 0.0)

    return look
