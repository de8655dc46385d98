"""The Llama decoder (Touvron et al. 2023): the generation module of OpenVLA and of RT-2 in LLaVA's layout.

It takes embeddings, not token ids, because images and prompt come as embeddings. Parameter names are those of the
Hugging Face implementation without its `model.` prefix. It keeps nothing between calls: keys and values of past tokens
are in the cache (`kv_cache`), an argument of each call. Attention is causal, so a token's hidden state depends only on
the tokens up to it: one forward over the longest prefix holds the hidden states of every shorter one (Auras 4.2.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.kv_cache import Attend, KVCache, StaticKVCache, within
from auras_ros.models.rotary import RopeScaling, rotary, rotate

GateActivation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a decoder. hidden: width inside the gated linear layers. head_dim: width / heads unless given.

    tied: the head is the embedding. activation, norm_offset and scaled_embedding are the differences of Gemma
    (`gemma`): the gate's activation, norms that multiply by 1 + weight, and embeddings times the square root of the
    width. qkv_bias: queries, keys and values have biases (Qwen2, GLM-4). rotated: how many numbers of a head are
    rotated, from the first one; all unless given (GLM-4). mrope: the sections of M-RoPE (see `rotary`), if positions
    have three parts (Qwen2-VL). Raises ValueError, naming the size.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    head_dim: int | None = None
    norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = False
    activation: GateActivation = "silu"
    norm_offset: bool = False
    scaled_embedding: bool = False
    qkv_bias: bool = False
    rotated: int | None = None
    mrope: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"llama: {name}: {getattr(self, name)} is less than 1")
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(f"llama: width: {self.width} is not a multiple of heads, {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"llama: heads: {self.heads} is not a multiple of kv_heads, {self.kv_heads}")
        if self.size_of_head < 2 or self.size_of_head % 2:
            raise ValueError(f"llama: head_dim: {self.size_of_head} is not even and at least 2")
        if not 2 <= self.size_rotated <= self.size_of_head or self.size_rotated % 2:
            raise ValueError(f"llama: rotated: {self.size_rotated} is not even, from 2 to {self.size_of_head}")
        if self.mrope and (min(self.mrope) < 1 or sum(self.mrope) != self.size_rotated // 2):
            raise ValueError(f"llama: mrope: {list(self.mrope)} are not {self.size_rotated // 2} frequencies in all")
        if self.activation not in get_args(GateActivation):
            known = ", ".join(get_args(GateActivation))
            raise ValueError(f"llama: activation: '{self.activation}' is not known; known: {known}")

    @property
    def size_rotated(self) -> int:
        return self.size_of_head if self.rotated is None else self.rotated

    @property
    def size_of_head(self) -> int:
        return self.width // self.heads if self.head_dim is None else self.head_dim


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, in float32 at least, whatever the type of x.

    offset: multiply by 1 + weight, and round to the type of x after that product, not before it, as published (Gemma).
    """

    def __init__(self, width: int, eps: float, offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width) if offset else torch.ones(width))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        if self.offset:
            return (wide * scale * (1 + self.weight.to(wide.dtype))).to(x.dtype)
        return self.weight * (wide * scale).to(x.dtype)


class LlamaAttention(nn.Module):
    """Attention with rotary positions and grouped heads; `attend` decides which tokens it sees.

    source: width of the input of keys and values; the tokens' own unless given.
    """

    def __init__(self, config: LlamaConfig, layer: int, source: int | None = None) -> None:
        super().__init__()
        self.layer, self.head_dim = layer, config.size_of_head
        queries, keys = config.heads * self.head_dim, config.kv_heads * self.head_dim
        self.q_proj = nn.Linear(config.width, queries, bias=config.qkv_bias)
        self.k_proj = nn.Linear(source or config.width, keys, bias=config.qkv_bias)
        self.v_proj = nn.Linear(source or config.width, keys, bias=config.qkv_bias)
        self.o_proj = nn.Linear(queries, config.width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        projected = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        query, key, value = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in projected)
        seen = attend(self.layer, rotate(query, angles), rotate(key, angles), value)
        out: Tensor = self.o_proj(seen.transpose(1, 2).flatten(2))
        return out


class GatedMlp(nn.Module):
    """down(activation(gate(x)) * up(x)): SwiGLU, or GeGLU with the tanh approximation (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, activation: GateActivation = "silu") -> None:
        super().__init__()
        self.activation = activation
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        gate = F.silu(gate) if self.activation == "silu" else F.gelu(gate, approximate="tanh")
        out: Tensor = self.down_proj(gate * self.up_proj(x))
        return out


class LlamaDecoderLayer(nn.Module):
    """Attention and gated linear layers, each with a norm before and a residual after. attending: the attention's other
    arguments."""

    def __init__(self, config: LlamaConfig, self_attn: LlamaAttention) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.mlp = GatedMlp(config.width, config.hidden, config.activation)
        self.input_layernorm = RmsNorm(config.width, config.norm_eps, config.norm_offset)
        self.post_attention_layernorm = RmsNorm(config.width, config.norm_eps, config.norm_offset)

    def forward(self, x: Tensor, *attending: Any) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), *attending)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """Embeddings [B, T, width] -> hidden states [B, T, width]; `logits` gives their scores, `embed` the next input.

    positions: int64 [T], or [B, T] if rows differ; 0 to T - 1 unless given. Without a cache the tokens see only one
    another, in the order given. With one they are stored at their positions, and see everything that is stored up to
    their own: a prefill, a single decoded token and the refresh of positions s to t are the same call. mask: as in
    `StaticKVCache.at` and `within`. places: positions for the rotary angles if they differ from `positions`: tokens
    after masked ones may be counted without them. With `mrope` they are [3, T] or [3, B, T]; `positions` count for all
    three unless given.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, LlamaAttention(config, i)) for i in range(config.layers))
        self.norm = RmsNorm(config.width, config.norm_eps, config.norm_offset)
        self.lm_head = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        mask: Tensor | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """The hidden states after the last layer, normalised: the input of `logits`."""
        if positions is None:
            positions = torch.arange(embeddings.shape[1], device=embeddings.device)
        attend = within(mask) if cache is None else cache.at(positions, mask)
        if places is None:
            places = positions.expand(3, *positions.shape) if self.config.mrope else positions
        x, angles = embeddings, self.angles(places, embeddings.dtype)
        for layer in self.layers:
            x = layer(x, angles, attend)
        hidden: Tensor = self.norm(x)
        return hidden

    def angles(self, places: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines of these positions: [T] or [B, T], with `mrope` [3, T] or [3, B, T]."""
        config = self.config
        return rotary(places, config.size_rotated, config.rope_theta, config.rope_scaling, dtype, config.mrope)

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids int64 [...] -> [..., width]."""
        embedded: Tensor = self.embed_tokens(ids)
        if not self.config.scaled_embedding:
            return embedded
        return embedded * embedded.new_full((), self.config.width**0.5)  # rounded to the weights' type, as published

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., width] -> the next token's scores [..., vocabulary]."""
        weight = self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, weight)

    def make_cache(self, batch: int, length: int) -> StaticKVCache:
        """An empty cache for this decoder, of its type and on its device."""
        config, weight = self.config, self.embed_tokens.weight
        shape = (config.layers, batch, config.kv_heads, length, config.size_of_head)
        return StaticKVCache(*shape, dtype=weight.dtype, device=weight.device)
