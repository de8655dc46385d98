"""Attention that keeps the rows of a decode batch, against the one that gathers their blocks at every step.

Guards: a row that is another sequence's now, or was written by others meanwhile, and is taken for up to date; tokens of
a step that was gathered; what an earlier owner left, seen or multiplied by zero; memory beyond that of the blocks.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from auras_ros.models.paged_attention import DecodeRow, GatheredAttention, RowAttention
from auras_ros.models.paged_kv import SPARE, PagedKVCache

LAYERS, BLOCKS, BLOCK, HEADS, SIZE, ROWS = 2, 41, 4, 2, 8, 4


class Sequence:
    """A name, blocks of its own, and how many tokens are stored."""

    def __init__(self, name: int, table: list[int], stored: int) -> None:
        self.name, self.table, self.stored = name, table, stored


def paged() -> PagedKVCache:
    made = PagedKVCache(LAYERS, BLOCKS, BLOCK, HEADS, SIZE, dtype=torch.float64)
    made.store.copy_(torch.randn(made.store.shape, generator=torch.Generator().manual_seed(1)))
    return made


def step(
    both: tuple[GatheredAttention, RowAttention], batch: list[Sequence], width: int, rows: int, seed: int
) -> list[tuple[Tensor, Tensor]]:
    """One decode of these sequences by both, filled up to so many rows: each layer's two outcomes."""
    tables, positions = torch.full((rows, width), SPARE), torch.zeros(rows, dtype=torch.int64)
    for row, each in enumerate(batch):
        tables[row, : len(each.table)] = torch.tensor(each.table)
        positions[row] = each.stored
    for attention in both:
        attention.follow([DecodeRow(each.name, each.table, each.stored) for each in batch], rows, width)
    attends = [attention.decode(tables, positions) for attention in both]
    made, chance = [], torch.Generator().manual_seed(seed)
    for layer in range(LAYERS):
        query = torch.randn(rows, 2 * HEADS, SIZE, generator=chance, dtype=torch.float64)
        kv = torch.randn(rows, 2 * HEADS, SIZE, generator=chance, dtype=torch.float64)
        gathered, kept = (attend(layer, query, kv)[: len(batch)] for attend in attends)
        made.append((gathered, kept))
    for each in batch:
        each.stored += 1
    return made


@pytest.mark.parametrize("seed", range(8))
@torch.inference_mode()
def test_sequences_come_and_go_and_change_their_rows(seed: int) -> None:
    """Steps of random sequences in random rows; tables that fit the rows and some that do not; blocks that change
    hands, some of them with numbers that are not finite before they are cleared."""
    chance, caches = random.Random(seed), (paged(), paged())
    both = GatheredAttention(caches[0]), RowAttention(caches[1], ROWS, 8)
    free, alive, made = list(range(1, BLOCKS)), list[Sequence](), 0
    for turn in range(120):
        while len(alive) < ROWS + 1:
            stored = chance.randint(1, 14)
            table = [free.pop(chance.randrange(len(free))) for _ in range(stored // BLOCK + 1)]
            for cache in caches:  # a prefill
                cache.clear(torch.tensor(table))
                cache.store[:, table] = torch.randn(LAYERS, len(table), BLOCK, 2 * HEADS, SIZE, dtype=torch.float64,
                                                    generator=torch.Generator().manual_seed(turn))  # fmt: skip
            alive.append(Sequence(made, table, stored))
            made += 1
        batch = chance.sample(alive, chance.randint(1, ROWS))
        for each in batch:
            if each.stored == len(each.table) * BLOCK:
                each.table.append(free.pop())
        width = 12 if chance.random() < 0.1 else max(len(each.table) for each in batch)
        for gathered, kept in step(both, batch, width, ROWS, turn):
            torch.testing.assert_close(kept, gathered)
            assert kept.isfinite().all()
        for each in [each for each in alive if chance.random() < 0.1 or each.stored > 26]:
            alive.remove(each)
            free += each.table
    assert torch.equal(caches[0].store, caches[1].store)


@torch.inference_mode()
def test_numbers_that_are_not_finite_do_not_stay_in_a_row() -> None:
    caches = (paged(), paged())
    both = GatheredAttention(caches[0]), RowAttention(caches[1], ROWS, 8)
    broken, sound = Sequence(0, [1, 2, 3], 9), Sequence(1, [4, 5, 6], 2)
    for cache in caches:
        cache.store[:, [1, 2, 3]] = torch.nan
    step(both, [broken], 3, 1, 0)
    for gathered, kept in step(both, [sound], 3, 1, 1):
        torch.testing.assert_close(kept, gathered)


@pytest.mark.parametrize(("rows", "width"), [(4, 8), (4, 100), (7, 3), (41, 1)])
def test_rows_take_no_more_memory_than_the_blocks(rows: int, width: int) -> None:
    cache = paged()
    attention = RowAttention(cache, rows, width)
    assert attention._rows.numel() <= cache.store.numel()
