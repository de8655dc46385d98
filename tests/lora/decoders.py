"""A tiny decoder with adapters in its slots, without a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.peft import LoraFactors, PeftAdapter
from auras_ros.lora.sites import Site, decoder_sites, head_site
from auras_ros.lora.slots import AdapterSlots, Resident
from auras_ros.models.fused_llama import FusedLlama
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.paged_kv import PagedKVCache

SIZES: dict[str, Any] = {"vocabulary": 50, "width": 48, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 80}
RANK = 6


class Decoder:
    """config: sizes that are others. slots: for adapters of RANK at most. kernels, halves: as in `AdapterSlots`."""

    def __init__(
        self,
        dtype: torch.dtype = torch.float32,
        slots: int = 3,
        int8: bool = False,
        kernels: bool = False,
        halves: bool = False,
        **config: Any,
    ) -> None:
        torch.manual_seed(0)
        self.config = LlamaConfig(**SIZES | config)
        self.llama = FusedLlama(Llama(self.config).to(dtype).eval().requires_grad_(False), int8)
        self.sites = decoder_sites(self.config)
        self.head = None if self.config.tied else head_site(self.config)
        cache = PagedKVCache(self.config.layers, 64 * slots, 8, self.config.kv_heads, 12, dtype=dtype)
        self.slots = AdapterSlots(cache.store, self.sites, self.head, RANK, slots, kernels, halves)

    @property
    def all_sites(self) -> Sequence[Site]:
        return [*self.sites, *([] if self.head is None else [self.head])]

    @property
    def places(self) -> dict[tuple[int, str], Site]:
        """Every layer's sites."""
        return {(layer, site.name): site for layer in range(self.config.layers) for site in self.sites}

    def put(self, slot: int, rank: int, seed: int, names: str = "") -> Resident:
        """A random adapter of this rank into the slot, for layers whose name has `names` in it."""
        resident = self.slots.write(slot, adapter(self, rank, seed, names))
        self.slots.publish(resident)
        return resident

    @torch.no_grad()
    def hidden(self, ids: Sequence[int], adapt: Any = None) -> Tensor:
        """Each token sees itself alone. [T, width]."""

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            return kv[:, kv.shape[1] // 2 :].repeat_interleave(query.shape[1] // (kv.shape[1] // 2), 1).flatten(1)

        x = self.llama.embed(torch.tensor(ids))
        return self.llama(x, torch.arange(len(ids)), attend, None, adapt)


def adapter(decoder: Decoder, rank: int, seed: int, names: str = "") -> PeftAdapter:
    random, factors = torch.Generator().manual_seed(seed), dict[str, LoraFactors]()
    for layer in range(decoder.config.layers):
        for site in decoder.sites:
            for name, low, high in zip(site.names(layer), site.bounds, site.bounds[1:], strict=False):
                if names in name:
                    a = torch.randn(rank, site.width, generator=random) / 4
                    factors[name] = LoraFactors(a, torch.randn(high - low, rank, generator=random) / 4)
    return PeftAdapter(f"adapter {seed}", f"digest {seed}", factors)
