"""Attention of tokens to their sequences' blocks: one interface, a form for each device.

Both methods return what a forward calls in each layer (`fused_llama.Attend`); what is the same in all layers is made
before. `decode` has fixed shapes and reads nothing back, so that the step can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.models.fused_llama import Attend
from auras_ros.models.paged_kv import PagedKVCache, PrefillSpan


class PagedAttention(Protocol):
    """Stores the tokens' keys and values, and lets each token see its sequence up to itself."""

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        """One token of each sequence. tables: int64 [B, n]; positions: int64 [B]."""
        ...

    def prefill(self, spans: Sequence[PrefillSpan]) -> Attend:
        """Tokens of several sequences, one after another."""
        ...


class GatheredAttention:
    """The blocks of a table are copied to one piece, and torch's attention reads them: the reference, and what is
    quickest on a CPU, where copying costs little beside reading the weights."""

    def __init__(self, cache: PagedKVCache) -> None:
        self.cache = cache

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        cache = self.cache
        slots = cache.slots(tables, positions)
        everything = torch.arange(tables.shape[1] * cache.block, device=positions.device)
        hidden = torch.zeros(len(tables), 1, 1, len(everything), dtype=cache.store.dtype, device=positions.device)
        hidden.masked_fill_((everything > positions[:, None])[:, None, None], -torch.inf)

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            cache.write(layer, slots, kv)
            keys, values = cache.read(layer, tables)
            grouped = query.unflatten(1, (cache.heads, -1))  # a group's heads as rows of one key head
            return F.scaled_dot_product_attention(grouped, keys, values, hidden).flatten(1)

        return attend

    def prefill(self, spans: Sequence[PrefillSpan]) -> Attend:
        cache = self.cache
        slots, visible, tables = [], [], []
        for span in spans:
            table = span.table.to(cache.store.device)
            here = torch.arange(span.first, span.end, device=table.device)
            slots.append(cache.slots(table, here))
            tables.append(table[: cache.needed(span.end)][None])
            seen = torch.arange(span.end, device=here.device)
            visible.append(None if span.first == 0 else (seen <= here[:, None])[None, None])
        joined, counts = torch.cat(slots), [span.count for span in spans]

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            cache.write(layer, joined, kv)
            out = []
            for span, table, mask, own, new in zip(
                spans, tables, visible, query.split(counts), kv.split(counts), strict=True
            ):
                if mask is None:  # the past is these tokens alone
                    keys, values = (part.transpose(0, 1)[None] for part in new.chunk(2, 1))
                else:
                    keys, values = (part[:, :, : span.end] for part in cache.read(layer, table))
                rows = own.transpose(0, 1)[None]
                seen = F.scaled_dot_product_attention(rows, keys, values, mask, is_causal=mask is None, enable_gqa=True)
                out.append(seen[0].transpose(0, 1).flatten(1))
            return torch.cat(out)

        return attend
