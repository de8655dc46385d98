"""A pool of equal blocks that many sequences share: keys and values of past tokens (Kwon et al. 2023, 4.1).

A sequence has a table of block numbers; position p is in block table[p // block], at p % block. Who owns which block is
not known here: two tables may name the same block (a shared prefix), and a block that is taken again is simply written
over. Block 0 belongs to nobody: what fills a batch up to its size writes and reads there.

A token sees exactly the positions up to its own, so a table's end, and what an earlier owner left, are never seen; but
a number that is not finite would be, as zero times it is none. Who has written such numbers clears the blocks before
another takes them (`clear`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from auras_ros.models.huge_pages import move_to_huge_pages

SPARE = 0  # the block that belongs to nobody


@dataclass(frozen=True)
class PrefillSpan:
    """Tokens of one sequence in a packed prefill: positions `first` to `first + count - 1`. table: its blocks, int64
    [n]."""

    first: int
    count: int
    table: Tensor

    @property
    def end(self) -> int:
        return self.first + self.count


class PagedKVCache:
    """`store` [layers, blocks, block, 2 * heads_kv, head_dim], allocated once: of each token the keys, then the values.
    Raises ValueError, naming the size."""

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
        self.heads = heads
        self.store = torch.zeros(layers, blocks, block, 2 * heads, head_dim, dtype=dtype, device=device)
        move_to_huge_pages(self.store)

    @property
    def blocks(self) -> int:
        return self.store.shape[1]

    @property
    def block(self) -> int:
        return self.store.shape[2]

    @property
    def half(self) -> bool:
        """Whether it is in half precision, which the kernels of GPUs ask for."""
        return self.store.element_size() == 2

    def needed(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.block)

    def clear(self, blocks: Tensor) -> None:
        """Zeros in these blocks, int64 [n], and in the spare one."""
        self.store.index_fill_(1, blocks.to(self.store.device), 0)
        self.store[:, SPARE] = 0

    def slots(self, tables: Tensor, positions: Tensor) -> Tensor:
        """Where the tokens at these positions [T] are stored, int64 [T]. tables: [T, n], each token's, or one [n]."""
        place = positions // self.block
        blocks = tables[place] if tables.dim() == 1 else tables.gather(1, place[:, None])[:, 0]
        return blocks * self.block + positions % self.block

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Store keys and values [T, 2 * heads_kv, d] at slots, int64 [T]."""
        self.store[layer].flatten(0, 1).index_copy_(0, slots, kv)

    def pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all blocks: each [blocks, block, heads_kv, d]. Views."""
        return self.store[layer, :, :, : self.heads], self.store[layer, :, :, self.heads :]

    def read(self, layer: int, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of whole tables [B, n]: each [B, heads_kv, n * block, d]."""
        rows = self.store[layer].index_select(0, tables.flatten()).view(len(tables), -1, *self.store.shape[3:])
        return rows[:, :, : self.heads].transpose(1, 2), rows[:, :, self.heads :].transpose(1, 2)
