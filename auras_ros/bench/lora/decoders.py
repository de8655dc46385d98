"""Decoders of stated sizes with random weights, and random adapters of all their linear layers."""

from __future__ import annotations

import torch

from auras_ros.checkpoints.peft import LoraFactors, PeftAdapter
from auras_ros.kernels import NUMBA
from auras_ros.lora.sites import decoder_sites
from auras_ros.lora.slots import AdapterSlots
from auras_ros.models.fused_llama import FusedLlama
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.paged_kv import PagedKVCache

SIZES = {
    "tiny": LlamaConfig(2048, 128, 4, 4, 2, 256, tied=True),
    "60m": LlamaConfig(2048, 896, 4, 14, 2, 4864, tied=True),  # four layers of it: `lora-load`'s qwen-60m
    "0.5b": LlamaConfig(1024, 896, 24, 14, 2, 4864, tied=True),  # Qwen2.5-0.5B's, but for the vocabulary
}
BLOCK = 16


class RandomDecoder:
    """residents: adapters of this rank, one in each slot. Their numbers are bfloat16's, as those in files usually
    are. halves: as of `AdapterSlots`; by itself with Numba."""

    def __init__(self, config: LlamaConfig, rank: int, slots: int, seed: int, halves: bool = NUMBA) -> None:
        torch.manual_seed(seed)
        self.layers, self.sites = config.layers, decoder_sites(config)
        self.llama = FusedLlama(Llama(config).eval().requires_grad_(False))
        numbers = sum(site.numbers(rank) for site in self.sites)
        blocks = slots * -(-numbers // (2 * BLOCK * config.kv_heads * config.size_of_head)) + 2
        cache = PagedKVCache(config.layers, blocks, BLOCK, config.kv_heads, config.size_of_head)
        self.slots = AdapterSlots(cache.store, self.sites, None, rank, slots, halves=halves)
        self.residents = [self.slots.write(slot, self._adapter(rank, slot)) for slot in range(slots)]
        for each in self.residents:
            self.slots.publish(each)

    def _adapter(self, rank: int, number: int) -> PeftAdapter:
        factors = {}
        for layer in range(self.layers):
            for site in self.sites:
                for name, low, high in zip(site.names(layer), site.bounds, site.bounds[1:], strict=False):
                    a, b = torch.randn(rank, site.width) / rank, torch.randn(high - low, rank) / 64
                    factors[name] = LoraFactors(*(each.bfloat16().float() for each in (a, b)))
        return PeftAdapter(f"adapter {number}", f"digest {number}", factors)
