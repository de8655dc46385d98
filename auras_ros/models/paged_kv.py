"""A pool of equal blocks that many sequences share: keys and values of past tokens (Kwon et al. 2023, 4.1).

A sequence has a table of block numbers; position p is in block table[p // block], at p % block. Who owns which block is
not known here: two tables may name the same block (a shared prefix), and a block that is taken again is simply written
over. Block 0 belongs to nobody: what fills a batch up to its size writes and reads there.

Two views give a forward its attention (`KVCache.at`). `decode`: one token of each sequence, in tensors of fixed shape,
so that the step can be captured. `prefill`: tokens of several sequences one after another in one row, each after its
own past. On a CPU blocks are gathered and torch's attention reads them: copying costs little beside reading the
weights. A query sees exactly the positions up to its own, so a table's end, and what an earlier owner left, are never
seen; but a number that is not finite would be, as zero times it is none. Who has written such numbers clears the blocks
before another takes them (`clear`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.models.kv_cache import Attend

SPARE = 0  # the block that belongs to nobody


@dataclass(frozen=True)
class PrefillSpan:
    """Tokens of one sequence in a packed prefill: positions `first` to `first + count - 1`. table: its blocks, int64
    [n]."""

    first: int
    count: int
    table: Tensor


class PagedKVCache:
    """`store` [layers, 2, blocks, block, heads_kv, head_dim], allocated once."""

    def __init__(
        self,
        layers: int,
        blocks: int,
        block: int,
        heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        for name, size in (("layers", layers), ("blocks", blocks - 1), ("block", block), ("heads", heads)):
            if size < 1:
                raise ValueError(f"paged KV cache: {name}: {size} is less than 1 (one block belongs to nobody)")
        self.store = torch.zeros(layers, 2, blocks, block, heads, head_dim, dtype=dtype, device=device)

    @property
    def blocks(self) -> int:
        return self.store.shape[2]

    @property
    def block(self) -> int:
        return self.store.shape[3]

    def needed(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.block)

    def clear(self, blocks: Tensor) -> None:
        """Zeros in these blocks, int64 [n], and in the spare one."""
        self.store.index_fill_(2, blocks, 0)
        self.store[:, :, SPARE] = 0

    def decode(self, tables: Tensor) -> DecodeView:
        """One token of each sequence. tables: int64 [B, n]."""
        return DecodeView(self, tables)

    def prefill(self, spans: Sequence[PrefillSpan]) -> PrefillView:
        """Tokens of several sequences, in this order, as one row."""
        return PrefillView(self, spans)

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store keys and values [N, heads_kv, d] at slots (block * size of a block + place in it), int64 [N]."""
        keys, values = self.store[layer].flatten(1, 2)
        keys.index_copy_(0, slots, key)
        values.index_copy_(0, slots, value)

    def read(self, layer: int, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of whole tables [B, n]: each [B, heads_kv, n * block, d]."""
        keys, values = (
            part.index_select(0, tables.flatten()).unflatten(0, tables.shape).flatten(1, 2).transpose(1, 2)
            for part in self.store[layer]
        )
        return keys, values


class DecodeView:
    """See `PagedKVCache.decode`. Reads nothing back: shapes decide everything, so the step can be captured."""

    def __init__(self, cache: PagedKVCache, tables: Tensor) -> None:
        self._cache, self._tables = cache, tables

    def at(self, positions: Tensor, mask: Tensor | None = None) -> Attend:
        """positions: int64 [B, 1]. A mask is not taken."""
        if mask is not None or positions.shape != (len(self._tables), 1):
            raise ValueError(f"paged KV cache: positions {list(positions.shape)}, expected [{len(self._tables)}, 1]")
        cache, tables = self._cache, self._tables
        slots = (tables.gather(1, positions // cache.block) * cache.block + positions % cache.block).flatten()
        everything = torch.arange(tables.shape[1] * cache.block, device=positions.device)
        visible = (everything <= positions)[:, None, None]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            cache.write(layer, slots, key[:, :, 0], value[:, :, 0])
            keys, values = cache.read(layer, tables)
            grouped = query.unflatten(1, (keys.shape[1], -1))[:, :, :, 0]  # a group's heads as rows of one key head
            seen = F.scaled_dot_product_attention(grouped, keys, values, visible)
            return seen.flatten(1, 2)[:, :, None]

        return attend


class PrefillView:
    """See `PagedKVCache.prefill`."""

    def __init__(self, cache: PagedKVCache, spans: Sequence[PrefillSpan]) -> None:
        self._cache, self._spans = cache, spans

    def at(self, positions: Tensor, mask: Tensor | None = None) -> Attend:
        """positions: int64 [T], of all spans one after another. A mask is not taken."""
        cache, spans = self._cache, self._spans
        total = sum(span.count for span in spans)
        if mask is not None or positions.shape != (total,):
            raise ValueError(f"paged KV cache: positions {list(positions.shape)}, expected [{total}]")
        slots, visible, tables = [], [], []
        for span in spans:
            here = torch.arange(span.first, span.first + span.count, device=positions.device)
            slots.append(span.table[here // cache.block] * cache.block + here % cache.block)
            tables.append(span.table[: cache.needed(span.first + span.count)][None])
            length = span.first + span.count
            seen = torch.arange(length, device=positions.device)
            visible.append(None if span.first == 0 else (seen <= here[:, None])[None, None])
        joined = torch.cat(slots)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            cache.write(layer, joined, key[0].transpose(0, 1), value[0].transpose(0, 1))
            out, start = [], 0
            for span, table, mask in zip(spans, tables, visible, strict=True):
                part = slice(start, start + span.count)
                if span.first:
                    length = span.first + span.count
                    keys, values = (each[:, :, :length] for each in cache.read(layer, table))
                else:  # the past is these tokens alone
                    keys, values = key[:, :, part], value[:, :, part]
                own = query[:, :, part]
                out.append(
                    F.scaled_dot_product_attention(own, keys, values, mask, is_causal=mask is None, enable_gqa=True)
                )
                start += span.count
            return torch.cat(out, 2)

        return attend
