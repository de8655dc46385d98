"""Where adapters add to the decoder: its joined linear layers, and how an adapter of the published ones fits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from auras_ros.checkpoints.peft import LoraFactors
from auras_ros.kernels.grouped_lora import Factors
from auras_ros.kernels.rope import pair_order
from auras_ros.models.fused_llama import HEAD
from auras_ros.models.llama import LlamaConfig


def up_to(rank: int, multiple: int) -> int:
    """The next multiple."""
    return -(-rank // multiple) * multiple


@dataclass(frozen=True, eq=False)
class Site:
    """A linear layer of `fused_llama`. linears: the names of the layers that are joined in it, within a decoder layer.
    bounds: where their outputs begin, and the end. order: the rows of a head in it, for those that are rotated."""

    name: str
    width: int
    linears: tuple[str, ...]
    bounds: tuple[int, ...]
    rotated: int = 0  # how many of the linears have their heads' rows in `order`
    order: Tensor | None = None

    @property
    def out(self) -> int:
        return self.bounds[-1]

    @property
    def parts(self) -> int:
        return len(self.linears)

    def numbers(self, rank: int) -> int:
        """Of an adapter's factors here."""
        return rank * (self.parts * self.width + self.out)

    def names(self, layer: int) -> list[str]:
        """Of our linear layers, as `VlmCheckpoint.targets` has them."""
        prefix = "language." if layer == HEAD else f"language.layers.{layer}."
        return [prefix + each for each in self.linears]

    def factors(self, layer: int, adapter: Mapping[str, LoraFactors], multiple: int = 1) -> Factors | None:
        """Of all parts, with zeros up to a multiple of the largest rank; None if the adapter has nothing here."""
        own = [adapter.get(name) for name in self.names(layer)]
        rank = max((len(each.a) for each in own if each is not None), default=0)
        if rank == 0:
            return None
        rank = up_to(rank, multiple)
        a, b = torch.zeros(self.parts, rank, self.width), torch.zeros(self.out, rank)
        for part, each in enumerate(own):
            if each is not None:
                a[part, : len(each.a)] = each.a
                rows = each.b if part >= self.rotated else self._ordered(each.b)
                b[self.bounds[part] : self.bounds[part + 1], : len(each.a)] = rows
        return Factors(a.flatten(0, 1), b)

    def _ordered(self, b: Tensor) -> Tensor:
        assert self.order is not None
        made: Tensor = b.unflatten(0, (-1, len(self.order)))[:, self.order].flatten(0, 1)
        return made


def decoder_sites(config: LlamaConfig) -> tuple[Site, ...]:
    """Those of every layer."""
    heads, kv = config.heads * config.size_of_head, config.kv_heads * config.size_of_head
    order = pair_order(config.size_of_head, config.size_rotated)

    def site(name: str, width: int, outputs: Mapping[str, int], **others: int | Tensor) -> Site:
        return Site(name, width, tuple(outputs), (0, *accumulate(outputs.values())), **others)  # type: ignore[arg-type]

    attention = {f"self_attn.{each}_proj": size for each, size in (("q", heads), ("k", kv), ("v", kv))}
    return (
        site("qkv", config.width, attention, rotated=2, order=order),
        site("o", heads, {"self_attn.o_proj": config.width}),
        site("gate_up", config.width, {f"mlp.{each}_proj": config.hidden for each in ("gate", "up")}),
        site("down", config.hidden, {"mlp.down_proj": config.width}),
    )


def head_site(config: LlamaConfig) -> Site:
    """The scores' layer, of a model that has one of its own."""
    return Site("head", config.width, ("lm_head",), (0, config.vocabulary))
