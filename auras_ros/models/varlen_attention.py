"""Paged attention by torch's kernel for sequences of many lengths (Flash Attention 2, of GPUs). Nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from auras_ros.models.fused_llama import Attend
from auras_ros.models.paged_attention import DecodeRow
from auras_ros.models.paged_kv import PagedKVCache, PrefillSpan

PAGE = 256  # the kernel takes blocks of a multiple of so many tokens
CAUSAL = (-1, 0)  # the last query sees everything that is used


class VarlenAttention:
    """For caches in half precision whose block is a multiple of 256. Raises ValueError for another one."""

    def __init__(self, cache: PagedKVCache) -> None:
        if not self.takes(cache):
            has = f"{cache.store.dtype} in blocks of {cache.block} tokens"
            raise ValueError(f"varlen attention: {has}; it must be half precision, in a multiple of {PAGE}")
        self.cache = cache

    @staticmethod
    def takes(cache: PagedKVCache) -> bool:
        return cache.half and cache.block % PAGE == 0

    def follow(self, rows: Sequence[DecodeRow], batch: int, width: int) -> None:
        """Nothing is kept from one decode to the next."""

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        count = len(tables)
        starts = torch.arange(count + 1, dtype=torch.int32, device=tables.device)
        slots = self.cache.slots(tables, positions)
        return self._attend(slots, tables.int(), starts, 1, (positions + 1).int())

    def prefill(self, spans: Sequence[PrefillSpan]) -> Attend:
        device = self.cache.store.device
        tables = [span.table.to(device) for span in spans]
        here = [torch.arange(span.first, span.end, device=device) for span in spans]
        slots = torch.cat([self.cache.slots(table, at) for table, at in zip(tables, here, strict=True)])
        counts = torch.tensor([0, *(span.count for span in spans)])
        ends = torch.tensor([span.end for span in spans], dtype=torch.int32, device=device)
        padded = torch.nn.utils.rnn.pad_sequence(tables, batch_first=True).int()
        return self._attend(slots, padded, counts.cumsum(0).int().to(device), int(counts.max()), ends)

    def _attend(self, slots: Tensor, tables: Tensor, starts: Tensor, most: int, ends: Tensor) -> Attend:
        """starts: of each sequence's queries, int32 [n + 1]. most: queries of one. ends: tokens it sees, int32 [n]."""
        cache, longest = self.cache, tables.shape[1] * self.cache.block
        key_starts = torch.arange(len(tables) + 1, dtype=torch.int32, device=tables.device) * longest

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            cache.write(layer, slots, kv)
            keys, values = cache.pages(layer)
            seen = varlen_attn(
                query, keys, values, starts, key_starts, most, longest,
                window_size=CAUSAL, enable_gqa=True, seqused_k=ends, block_table=tables,
            )  # fmt: skip
            assert isinstance(seen, Tensor)  # the log-sum-exp is not asked for
            return seen.flatten(1)

        return attend
