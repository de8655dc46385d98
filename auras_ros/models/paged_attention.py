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

PIECE = 128  # tokens of a prefill that attend in one call: it multiplies with all keys up to the last one's


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
        cache, device = self.cache, self.cache.store.device
        tables = [span.table.to(device) for span in spans]
        heres = [torch.arange(span.first, span.end, device=device) for span in spans]
        slots = torch.cat([cache.slots(table, here) for table, here in zip(tables, heres, strict=True)])
        counts = [span.count for span in spans]
        stairs = _stairs(max(span.end for span in spans), cache.store)

        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            cache.write(layer, slots, kv)
            out = []
            for span, table, own, new in zip(spans, tables, query.split(counts), kv.split(counts), strict=True):
                if span.first:
                    keys, values = cache.read(layer, table[: cache.needed(span.end)][None])
                else:  # the past is these tokens alone
                    keys, values = (part.transpose(0, 1)[None] for part in new.chunk(2, 1))
                for begin in range(span.first, span.end, PIECE):
                    end = min(begin + PIECE, span.end)
                    rows = own[begin - span.first : end - span.first].transpose(0, 1)[None]
                    hidden = stairs[: end - begin, stairs.shape[1] - PIECE - begin :][:, :end]
                    seen = F.scaled_dot_product_attention(
                        rows, keys[:, :, :end], values[:, :, :end], hidden, enable_gqa=True
                    )
                    out.append(seen[0].transpose(0, 1).flatten(1))
            return torch.cat(out)

        return attend


def _stairs(longest: int, like: Tensor) -> Tensor:
    """What is added to the scores so that a token sees nothing after itself, [PIECE, longest + PIECE]: of tokens that
    begin at position b, the columns from `longest` - b."""
    columns = torch.arange(longest + PIECE, device=like.device)
    rows = torch.arange(PIECE, device=like.device)[:, None] + longest
    hidden = columns > rows
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)


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
                same = held is not None and held[0] == row.name and held[1] < row.stored
                self._copy(index, row, held[1] if held is not None and same else 0)
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

    def _copy(self, index: int, row: DecodeRow, begin: int) -> None:
        """The row's tokens from position `begin` on, from their blocks; and no number of its earlier owner stays, as it
        might not be finite."""
        first, block = begin // self.cache.block, self.cache.block
        blocks = torch.tensor(row.table[first : self.cache.needed(row.stored)], device=self._rows.device)
        tokens = self.cache.store.index_select(1, blocks).flatten(1, 2)[
            :, begin - first * block : row.stored - first * block
        ]
        own = self._rows[:, index]
        own[:, :, begin : row.stored] = tokens.transpose(1, 2)
        own[:, :, row.stored : self._ends[index]] = 0
        self._ends[index] = row.stored
