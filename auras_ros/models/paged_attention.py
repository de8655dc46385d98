"""Attention of tokens to their sequences' blocks: one interface, a form for each device.

Both methods return what a forward calls in each layer (`fused_llama.Attend`); what is the same in all layers is made
before. `decode` has fixed shapes and reads nothing back, so that the step can be captured.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.models.fused_llama import Attend
from auras_ros.models.paged_kv import PagedKVCache, PrefillSpan


class DecodeRow(NamedTuple):
    """A sequence of the next decode. stored: how many of its tokens are in the blocks of `table`."""

    name: Hashable
    table: Sequence[int]
    stored: int


class PagedAttention(Protocol):
    """Stores the tokens' keys and values, and lets each token see its sequence up to itself."""

    def follow(self, rows: Sequence[DecodeRow], batch: int, width: int) -> None:
        """Called before each decode, outside of what is captured: its sequences, row by row. batch: its rows; those
        beyond the sequences are the spare block's. width: its tables'."""
        ...

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        """One token of each sequence. tables: int64 [B, n]; positions: int64 [B]."""
        ...

    def prefill(self, spans: Sequence[PrefillSpan]) -> Attend:
        """Tokens of several sequences, one after another."""
        ...


class GatheredAttention:
    """The blocks of a table are copied to one piece, and torch's attention reads them: the reference."""

    def __init__(self, cache: PagedKVCache) -> None:
        self.cache = cache

    def follow(self, rows: Sequence[DecodeRow], batch: int, width: int) -> None:
        """Nothing is kept from one decode to the next."""

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        cache = self.cache
        slots, hidden = cache.slots(tables, positions), self._hidden(tables, positions)

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            cache.write(layer, slots, kv)
            return self._seen(query, *cache.read(layer, tables), hidden)

        return attend

    def _hidden(self, tables: Tensor, positions: Tensor) -> Tensor:
        """What each row does not see: [B, 1, 1, n * block], added to the scores."""
        everything = torch.arange(tables.shape[1] * self.cache.block, device=positions.device)
        hidden = torch.zeros(len(tables), 1, 1, len(everything), dtype=self.cache.store.dtype, device=positions.device)
        return hidden.masked_fill_((everything > positions[:, None])[:, None, None], -torch.inf)

    def _seen(self, query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        grouped = query.unflatten(1, (self.cache.heads, -1))  # a group's heads as rows of one key head
        return F.scaled_dot_product_attention(grouped, keys, values, hidden).flatten(1)

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


class RowAttention(GatheredAttention):
    """What decodes is also kept in one piece, row by row, from step to step: only a row that gets another sequence is
    copied from its blocks. The quickest on a CPU (docs/engine.md).

    The rows take as much memory as the blocks at most. Batches with longer tables than fit are gathered.
    """

    def __init__(self, cache: PagedKVCache, rows: int, width: int) -> None:
        """rows, width: of the largest batch and its longest table."""
        super().__init__(cache)
        layers, blocks, block, heads, size = cache.store.shape
        self._length = min(width, blocks // rows) * block
        shape = (layers, rows, heads, self._length, size)
        self._rows = torch.zeros(shape, dtype=cache.store.dtype, device=cache.store.device)
        self._held: list[tuple[Hashable, int] | None] = [None] * rows
        self._ends = [0] * rows  # up to where a row was ever written since it was zero

    def follow(self, rows: Sequence[DecodeRow], batch: int, width: int) -> None:
        fits = self._fits(width)
        for index, held in enumerate(self._held):
            row = rows[index] if fits and index < len(rows) else None
            if row is not None and held != (row.name, row.stored):
                self._copy(index, row)
            self._held[index] = None if row is None else (row.name, row.stored + 1)
            self._ends[index] = max(self._ends[index], 1 if row is None else row.stored + 1)

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        if not self._fits(tables.shape[1]):
            return super().decode(tables, positions)
        cache, batch, length = self.cache, len(tables), tables.shape[1] * self.cache.block
        slots, hidden = cache.slots(tables, positions), self._hidden(tables, positions)
        heads = torch.arange(batch * 2 * cache.heads, device=positions.device).view(batch, -1)
        places = (heads * self._length + positions[:, None]).flatten()

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            cache.write(layer, slots, kv)
            own = self._rows[layer]
            own.view(-1, own.shape[-1]).index_copy_(0, places, kv.flatten(0, 1))
            keys, values = own[:batch, :, :length].chunk(2, 1)
            return self._seen(query, keys, values, hidden)

        return attend

    def _fits(self, width: int) -> bool:
        return width * self.cache.block <= self._length

    def _copy(self, index: int, row: DecodeRow) -> None:
        """The row's tokens from their blocks; and no number of its earlier owner stays, as it might not be finite."""
        blocks = torch.tensor(row.table[: self.cache.needed(row.stored)], device=self._rows.device)
        tokens = self.cache.store.index_select(1, blocks).flatten(1, 2)[:, : row.stored]
        own = self._rows[:, index]
        own[:, :, : row.stored] = tokens.transpose(1, 2)
        own[:, :, row.stored : self._ends[index]] = 0
        self._ends[index] = row.stored
