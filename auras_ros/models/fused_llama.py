"""The Llama decoder in the form in which a forward takes the fewest calls: what the engine runs.

Queries, keys and values are one product, the gate and its partner another; a residual is added within the product
before it. Tokens of all sequences stand in one row [T, width]: a packed prefill and a decode batch are the same
forward, and only attention knows which token belongs to which sequence (`paged_attention`). RMSNorm and rotation are
one call each (`kernels`, Nova IV).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.kernels.rms_norm import rms_norm
from auras_ros.kernels.rope import pair_order, rotate_
from auras_ros.models.cogagent import CogAgentLayer, ImageAttention
from auras_ros.models.linear import AnyLinear, Int8Linear, fastest, in_huge_pages
from auras_ros.models.llama import Llama, LlamaConfig, LlamaDecoderLayer, RmsNorm

Attend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, queries [T, heads, d], keys and values [T, 2 * heads_kv, d]) -> [T, heads * d]."""
Look = Callable[[int, Tensor], Tensor]
"""(layer, queries [T, heads, d]) -> [T, heads, d]: what the tokens see of their images (`cogagent`)."""
Adapt = Callable[[int, str, Tensor, Tensor], None]
"""(layer, one of SITES, inputs [T, in], outputs [T, out]): adds to the outputs what adapters change (`auras_ros.lora`).
The head is of layer HEAD."""
Pack = Callable[[Tensor, Tensor | None], AnyLinear]
SITES, HEAD = ("qkv", "o", "gate_up", "down", "head"), -1


class ReadRows(NamedTuple):
    """The rows of which a forward's states are read: after its last attention nothing else is computed. rows: int64
    [n]; adapt: what adapters change of them."""

    rows: Tensor
    adapt: Adapt | None = None


class FusedLayer:
    """Attention, attention to images where the layer has it, gated linear layers."""

    def __init__(self, config: LlamaConfig, layer: LlamaDecoderLayer, index: int, pack: Pack) -> None:
        own, mlp, order = layer.self_attn, layer.mlp, pair_order(config.size_of_head, config.size_rotated)
        self.index, self.heads, self.kv_heads, self.head = index, config.heads, config.kv_heads, config.size_of_head
        self.norms = (layer.input_layernorm, layer.post_attention_layernorm)
        self.qkv = pack(*_joined(_ordered(own.q_proj, order), _ordered(own.k_proj, order), _as_it_is(own.v_proj)))
        self.o = pack(own.o_proj.weight, None)
        self.gate_up = pack(*_joined(_as_it_is(mlp.gate_proj), _as_it_is(mlp.up_proj)))
        self.down = pack(mlp.down_proj.weight, None)
        self.cross: ImageAttention | None = None
        if isinstance(layer, CogAgentLayer):
            self.cross, self.cross_norm = layer.cross_attn, layer.post_cross_attention_layernorm

    def linears(self) -> dict[str, AnyLinear]:
        """By their site."""
        return {"qkv": self.qkv, "o": self.o, "gate_up": self.gate_up, "down": self.down}

    def __call__(
        self, x: Tensor, turns: Tensor, attend: Attend, look: Look | None, adapt: Adapt | None, read: ReadRows | None
    ) -> Tensor:
        rows, normed = len(x), _normed(self.norms[0], x)
        flat = self.qkv(normed)
        if adapt is not None:
            adapt(self.index, "qkv", normed, flat)
        qkv = flat.view(rows, self.heads + 2 * self.kv_heads, self.head)
        rotate_(qkv[:, : self.heads + self.kv_heads], turns)
        seen = attend(self.index, qkv[:, : self.heads], qkv[:, self.heads :])
        if read is not None:
            (own, adapt), rows = read, len(read.rows)
            seen, x = seen.index_select(0, own), x.index_select(0, own)
        x = self.o.plus(seen, x)
        if adapt is not None:
            adapt(self.index, "o", seen, x)
        if self.cross is not None and look is not None:  # a token without an image adds nothing
            query = self.cross.q_proj(_normed(self.cross_norm, x)).view(rows, self.cross.heads, -1)
            x = x + self.cross.o_proj(look(self.index, query).flatten(1))
        normed = _normed(self.norms[1], x)
        both = self.gate_up(normed)
        if adapt is not None:
            adapt(self.index, "gate_up", normed, both)
        gate, up = both.chunk(2, -1)
        inner = F.silu(gate).mul_(up)
        x = self.down.plus(inner, x)
        if adapt is not None:
            adapt(self.index, "down", inner, x)
        return x


class FusedLlama:
    """Takes the weights of `llama` over layer by layer, so that they are in memory once; it cannot be used afterwards.
    The head of a tied model is packed beside the embedding. Raises ValueError for what no vision-language model has.
    int8: the layers' weights in 8 bits (`Int8Linear`); not the head's, which decides between near scores."""

    def __init__(self, llama: Llama, int8: bool = False) -> None:
        config = llama.config
        if config.activation != "silu" or config.norm_offset or config.scaled_embedding:
            raise ValueError("fused llama: only SwiGLU, norms without an offset and plain embeddings")
        self.config, self._llama = config, llama
        pack: Pack = Int8Linear if int8 else _packed
        self.layers = list[FusedLayer]()
        for index, layer in enumerate(llama.layers):
            if not isinstance(layer, LlamaDecoderLayer) or not hasattr(layer, "mlp"):
                raise ValueError("fused llama: the decoder's weights were taken over already")
            self.layers.append(FusedLayer(config, layer, index, pack))
            del layer.self_attn, layer.mlp  # what reads images stays (`CogAgentDecoder.image_keys`)
        self.head = _packed(llama.embed_tokens.weight if llama.lm_head is None else llama.lm_head.weight)
        llama.lm_head = None
        weight = llama.embed_tokens.weight
        self.dtype, self.device = weight.dtype, weight.device
        self.crosses = any(layer.cross is not None for layer in self.layers)
        self._table: Tensor | None = None

    def linear(self, layer: int, site: str) -> AnyLinear:
        return self.head if layer == HEAD else self.layers[layer].linears()[site]

    def replace(self, layer: int, site: str, linear: AnyLinear) -> None:
        """For forwards that begin after it."""
        setattr(self if layer == HEAD else self.layers[layer], site, linear)

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids int64 [T] -> [T, width]."""
        return self._llama.embed(ids)

    def logits(self, hidden: Tensor, adapt: Adapt | None = None) -> Tensor:
        """Hidden states [T, width] -> scores [T, vocabulary]."""
        out: Tensor = self.head(hidden)
        if adapt is not None:
            adapt(HEAD, "head", hidden, out)
        return out

    def __call__(
        self,
        x: Tensor,
        places: Tensor,
        attend: Attend,
        look: Look | None = None,
        adapt: Adapt | None = None,
        read: ReadRows | None = None,
    ) -> Tensor:
        """Embeddings [T, width] -> hidden states [T, width], normalised. places: int64 [T], or [3, T] with M-RoPE; [T]
        is then text, whose three places are one. read: -> [n, width] of those rows; not of a model that `crosses`."""
        turns = self._turns(places)
        for layer in self.layers[:-1]:
            x = layer(x, turns, attend, look, adapt, None)
        return _normed(self._llama.norm, self.layers[-1](x, turns, attend, look, adapt, read))

    def tabulate(self, length: int) -> None:
        """Computes the angles of places below `length` once: a small model's step spent a twentieth on them."""
        self._table = self._turns(torch.arange(length, device=self.device))

    def _turns(self, places: Tensor) -> Tensor:
        """As `rotate_` takes them."""
        if places.dim() == 1 and self._table is not None:
            return self._table.index_select(0, places)
        wide = places.expand(3, -1) if self.config.mrope and places.dim() == 1 else places
        angles = self._llama.angles(wide, torch.float32)
        return torch.complex(*(each[:, None, : self.config.size_rotated // 2] for each in angles))


Parameters = tuple[Tensor, Tensor | None]
"""A linear layer's weight and bias."""


def _packed(weight: Tensor, bias: Tensor | None = None) -> AnyLinear:
    return in_huge_pages(fastest(weight, bias))


def _as_it_is(layer: nn.Linear) -> Parameters:
    return layer.weight, layer.bias


def _ordered(layer: nn.Linear, order: Tensor) -> Parameters:
    """The outputs of each head in this order."""
    weight, bias = (
        None if each is None else each.unflatten(0, (-1, len(order)))[:, order].flatten(0, 1)
        for each in (layer.weight, layer.bias)
    )
    assert weight is not None
    return weight, bias


def _joined(*layers: Parameters) -> Parameters:
    """One weight, and one bias, that give all layers' outputs one after another."""
    weights, biases = zip(*layers, strict=True)
    return torch.cat(weights), torch.cat(biases) if biases[0] is not None else None


def _normed(norm: RmsNorm, x: Tensor) -> Tensor:
    return rms_norm(x, norm.weight, norm.eps)
