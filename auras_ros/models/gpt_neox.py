"""GPT-NeoX (Black et al. 2022) at Pythia's layout: the language model that TinyVLA encodes with.

It takes embeddings, not token ids, because images come as embeddings, and it returns hidden states. It never decodes
and keeps nothing between calls; the decoder with a cache is `llama`. Parameter names are those of the Hugging Face
implementation without its `gpt_neox.` prefix. Query, key and value lie head by head in one matrix, as published.
Attention is causal, so a token's hidden state depends only on the tokens up to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Block, Blocks, named
from auras_ros.models.kv_cache import attention
from auras_ros.models.rotary import rotary, rotate

Angles = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class GptNeoxConfig:
    """Sizes of a model. hidden: width inside the linear layers. rotary_share: the share of each head that is rotated.

    head: with the scores of the next token, which an encoder does not need. Raises ValueError, naming the size.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    hidden: int
    rotary_share: float = 0.25
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    head: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"gpt_neox: {name}: {getattr(self, name)} is less than 1")
        if self.width % self.heads:
            raise ValueError(f"gpt_neox: width: {self.width} is not a multiple of heads, {self.heads}")
        if not 2 <= self.rotated <= self.head_dim or self.rotated % 2:
            raise ValueError(
                f"gpt_neox: rotary_share: {self.rotary_share} turns {self.rotated} of {self.head_dim} channels of a "
                "head, which is not an even number of at least 2"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def rotated(self) -> int:
        """Rotated channels of each head, the first ones."""
        return int(self.head_dim * self.rotary_share)


class NeoxAttention(nn.Module):
    """Causal attention with rotary positions in the first channels of each head."""

    def __init__(self, config: GptNeoxConfig) -> None:
        super().__init__()
        self.heads, self.rotated = config.heads, config.rotated
        self.query_key_value = nn.Linear(config.width, 3 * config.width)  # head by head: its query, key and value
        self.dense = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        query, key, value = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        seen = attention(self._turned(query, angles), self._turned(key, angles), value)
        out: Tensor = self.dense(seen.transpose(1, 2).flatten(2))
        return out

    def _turned(self, x: Tensor, angles: Angles) -> Tensor:
        return torch.cat([rotate(x[..., : self.rotated], angles), x[..., self.rotated :]], -1)


class NeoxLayer(nn.Module):
    """Attention and linear layers in parallel on the same input, each with its own norm; both are added."""

    def __init__(self, config: GptNeoxConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.width, config.norm_eps)
        self.post_attention_layernorm = nn.LayerNorm(config.width, config.norm_eps)
        self.attention = NeoxAttention(config)
        wide, narrow = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.mlp = named(dense_h_to_4h=wide, gelu=nn.GELU(), dense_4h_to_h=narrow)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        attended = self.attention(self.input_layernorm(x), angles)
        out: Tensor = self.mlp(self.post_attention_layernorm(x)) + attended + x
        return out


class GptNeox(nn.Module):
    """Embeddings [B, T, width] -> hidden states after the last norm [B, T, width]; positions are 0 to T - 1."""

    def __init__(self, config: GptNeoxConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_in = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(NeoxLayer(config) for _ in range(config.layers))
        self.final_layer_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.embed_out = nn.Linear(config.width, config.vocabulary, bias=False) if config.head else None

    def blocks(self) -> Blocks:
        """Consecutive parts, by name; each takes what the one before it returns. Together: `forward`.

        The last part is the last layer with the norm after it. Each part recomputes its angles from the number of
        tokens: passed on, they would get a batch dimension that they do not have.
        """
        return [(f"layers.{i}", self._layer(i)) for i in range(len(self.layers))]

    def forward(self, embeddings: Tensor) -> Tensor:
        angles, x = self._angles(embeddings), embeddings
        for layer in self.layers:
            x = layer(x, angles)
        out: Tensor = self.final_layer_norm(x)
        return out

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids int64 [...] -> [..., width]."""
        embedded: Tensor = self.embed_in(ids)
        return embedded

    def _angles(self, x: Tensor) -> Angles:
        positions = torch.arange(x.shape[1], device=x.device)
        return rotary(positions, self.config.rotated, self.config.rope_theta, None, x.dtype)

    def _layer(self, index: int) -> Block:
        last = index + 1 == len(self.layers)

        def run(x: Tensor) -> tuple[Tensor]:
            out = self.layers[index](x, self._angles(x))
            return (self.final_layer_norm(out) if last else out,)

        return run
