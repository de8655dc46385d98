"""Paged keys and values against a cache with a slab for each sequence.

Guards: a token written into another sequence's block; what an earlier owner left in a block that is seen; a past that
is shifted by a block; heads grouped the wrong way round.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from auras_ros.models.fused_llama import FusedLlama, ReadRows
from auras_ros.models.llama import Llama
from auras_ros.models.paged_attention import GatheredAttention
from auras_ros.models.paged_kv import SPARE, PagedKVCache, PrefillSpan
from auras_ros.models.presets import LLAMAS
from tests.models.published import randomise

CONFIG = replace(LLAMAS["llama-tiny"], mrope=(1, 1, 2))
BLOCK, BLOCKS = 4, 40
LENGTHS = (1, 7, 4, 13, 8)


@pytest.fixture(scope="module")
def model() -> Llama:
    made = randomise(Llama(CONFIG)).double()
    assert isinstance(made, Llama)
    return made


@pytest.fixture(scope="module")
def fused(model: Llama) -> FusedLlama:
    return FusedLlama(deepcopy(model))


def paged() -> PagedKVCache:
    """A pool full of what earlier owners left."""
    shape = (CONFIG.layers, BLOCKS, BLOCK, CONFIG.kv_heads, CONFIG.size_of_head)
    made = PagedKVCache(*shape, dtype=torch.float64)
    made.store.copy_(torch.randn(made.store.shape, generator=torch.Generator().manual_seed(1)) * 5)
    return made


def tables(lengths: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Blocks in random order, without the spare one."""
    order = torch.randperm(BLOCKS - 1, generator=torch.Generator().manual_seed(seed)) + 1
    counts = [-(-length // BLOCK) + 1 for length in lengths]
    return list(order[: sum(counts)].split(counts))


def inputs(lengths: tuple[int, ...]) -> list[Tensor]:
    random = torch.Generator().manual_seed(3)
    return [torch.randn(length, CONFIG.width, generator=random, dtype=torch.float64) for length in lengths]


def alone(model: Llama, x: Tensor) -> Tensor:
    return model(x[None])[0]


def packed(fused: FusedLlama, cache: PagedKVCache, parts: list[Tensor], spans: list[PrefillSpan]) -> list[Tensor]:
    """One prefill of these parts; each part's hidden states."""
    positions = torch.cat([torch.arange(span.first, span.end) for span in spans]).expand(3, -1)
    hidden = fused(torch.cat(parts), positions, GatheredAttention(cache).prefill(spans))
    return list(hidden.split([span.count for span in spans]))


@torch.inference_mode()
def test_rows_that_are_read_are_those_of_the_whole_and_all_are_stored(fused: FusedLlama) -> None:
    parts, own, changed = inputs(LENGTHS), tables(LENGTHS), list[tuple[int, str, int]]()
    spans = [PrefillSpan(0, len(part), table) for part, table in zip(parts, own, strict=True)]
    whole, cache, read = paged(), paged(), torch.tensor([0, 7, sum(LENGTHS) - 1])
    wanted = torch.cat(packed(fused, whole, parts, spans))[read]
    positions = torch.cat([torch.arange(len(part)) for part in parts]).expand(3, -1)
    found = fused(
        torch.cat(parts), positions, GatheredAttention(cache).prefill(spans), None,
        lambda layer, site, x, _: changed.append((layer, site, len(x))),
        ReadRows(read, lambda layer, site, x, _: changed.append((layer, f"read {site}", len(x)))),
    )  # fmt: skip
    torch.testing.assert_close(found, wanted)
    assert torch.equal(cache.store, whole.store)
    last = CONFIG.layers - 1
    assert [each for each in changed if each[0] == last] == [
        (last, "qkv", sum(LENGTHS)), (last, "read o", 3), (last, "read gate_up", 3), (last, "read down", 3),
    ]  # fmt: skip


def decoded(fused: FusedLlama, cache: PagedKVCache, x: Tensor, positions: Tensor, tables: Tensor) -> Tensor:
    """Hidden states [B, width] of one token x [B, width] of each sequence, at positions [B]."""
    return fused(x, positions.expand(3, -1), GatheredAttention(cache).decode(tables, positions))


@torch.inference_mode()
def test_a_packed_prefill_is_each_sequence_alone(model: Llama, fused: FusedLlama) -> None:
    parts, own = inputs(LENGTHS), tables(LENGTHS)
    spans = [PrefillSpan(0, len(part), table) for part, table in zip(parts, own, strict=True)]
    for part, hidden in zip(parts, packed(fused, paged(), parts, spans), strict=True):
        torch.testing.assert_close(hidden, alone(model, part))


@torch.inference_mode()
@pytest.mark.parametrize("chunk", [1, 3, 4, 6])
def test_a_prefill_in_chunks_is_the_whole(model: Llama, fused: FusedLlama, chunk: int) -> None:
    parts, own, cache = inputs(LENGTHS), tables(LENGTHS), paged()
    got: list[list[Tensor]] = [[] for _ in parts]
    for first in range(0, max(LENGTHS), chunk):
        open_ = [index for index, part in enumerate(parts) if first < len(part)]
        pieces = [parts[index][first : first + chunk] for index in open_]
        spans = [PrefillSpan(first, len(piece), own[index]) for index, piece in zip(open_, pieces, strict=True)]
        for index, hidden in zip(open_, packed(fused, cache, pieces, spans), strict=True):
            got[index].append(hidden)
    for part, pieces in zip(parts, got, strict=True):
        torch.testing.assert_close(torch.cat(pieces), alone(model, part))


@torch.inference_mode()
def test_decoding_in_a_batch_is_each_sequence_alone(model: Llama, fused: FusedLlama) -> None:
    """Rows that fill the batch up write to the spare block, and disturb nobody."""
    parts, own, cache = inputs(LENGTHS), tables(LENGTHS), paged()
    befores = [max(len(part) - 3, 0) for part in parts]
    spans = [PrefillSpan(0, count, table) for count, table in zip(befores, own, strict=True) if count]
    packed(fused, cache, [part[:count] for part, count in zip(parts, befores, strict=True) if count], spans)
    width = max(len(table) for table in own)
    filled = torch.full((len(parts) + 2, width), SPARE)
    for row, table in enumerate(own):
        filled[row, : len(table)] = table
    for step in range(3):
        at = [before + step if before + step < len(part) else None for before, part in zip(befores, parts, strict=True)]
        rows = [row for row, place in enumerate(at) if place is not None]
        x = torch.zeros(len(filled), CONFIG.width, dtype=torch.float64)
        positions = torch.zeros(len(filled), dtype=torch.int64)
        table = torch.full_like(filled, SPARE)
        for row in rows:
            place = at[row]
            assert place is not None
            x[row], positions[row], table[row] = parts[row][place], place, filled[row]
        hidden = decoded(fused, cache, x, positions, table)
        for row in rows:
            torch.testing.assert_close(hidden[row], alone(model, parts[row])[at[row]])


@torch.inference_mode()
def test_two_sequences_share_the_blocks_of_a_prefix(model: Llama, fused: FusedLlama) -> None:
    first, tail = inputs((8, 5))
    cache, (table, other) = paged(), tables((8, 8))
    packed(fused, cache, [first], [PrefillSpan(0, 8, table)])
    shared = torch.cat([table[:2], other])
    kept = cache.store[:, table[:2]].clone()
    (hidden,) = packed(fused, cache, [tail], [PrefillSpan(8, 5, shared)])
    torch.testing.assert_close(hidden, alone(model, torch.cat([first, tail]))[8:])
    assert torch.equal(cache.store[:, table[:2]], kept)


@torch.inference_mode()
def test_numbers_that_are_not_finite_end_with_their_owner(model: Llama, fused: FusedLlama) -> None:
    (part,), (table,), cache = inputs((5,)), tables((5,)), paged()
    cache.store[:, table], cache.store[:, SPARE] = torch.nan, torch.inf
    cache.clear(table)
    packed(fused, cache, [part[:4]], [PrefillSpan(0, 4, table)])
    wide = torch.cat([table, torch.tensor([SPARE])])[None]
    hidden = decoded(fused, cache, part[4:], torch.tensor([4]), wide)
    torch.testing.assert_close(hidden[0], alone(model, part)[4])


def test_a_pool_without_a_block_is_refused() -> None:
    cache = paged()
    with pytest.raises(ValueError, match="blocks: 0 is less than 1"):
        PagedKVCache(1, 1, 4, 1, 4)
    assert (cache.needed(0), cache.needed(4), cache.needed(5)) == (0, 1, 2)


def test_blocks_are_cleared_on_a_device_that_is_not_where_their_numbers_are() -> None:
    """As an engine's on a GPU: torch refuses an index of another device."""
    cache = PagedKVCache(1, 3, 2, 1, 4)
    cache.store = cache.store.to("meta")
    cache.clear(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="same device"):
        cache.store.index_fill_(1, torch.tensor([1]), 0)
