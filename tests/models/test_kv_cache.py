"""What the static cache shows: what was written, up to the query, since it was last forgotten. And where it lies.

Guards: a gap that is read; a forgotten NaN that spoils what comes after; memory that moves under a captured graph.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from auras_ros.models.kv_cache import StaticKVCache, attention, within

LAYERS, BATCH, HEADS, LENGTH, DIM = 2, 2, 2, 10, 4


def cache() -> StaticKVCache:
    return StaticKVCache(LAYERS, BATCH, HEADS, LENGTH, DIM, dtype=torch.float64)


def parts(tokens: int, seed: int = 0, heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key, value of so many tokens."""
    random = torch.Generator().manual_seed(seed)
    sizes = (heads, HEADS, HEADS)
    return tuple(torch.randn(BATCH, n, tokens, DIM, dtype=torch.float64, generator=random) for n in sizes)  # type: ignore[return-value]


def naive(query: Tensor, keys: Tensor, values: Tensor) -> list[float]:
    """One query [d] over keys and values [S, d], every sum written out."""
    scores = [sum(q * k for q, k in zip(query.tolist(), key, strict=True)) / math.sqrt(DIM) for key in keys.tolist()]
    weights = [math.exp(score) for score in scores]
    rows = zip(weights, values.tolist(), strict=True)
    sums = [[weight * each / sum(weights) for each in value] for weight, value in rows]
    return [sum(column) for column in zip(*sums, strict=True)]


@pytest.mark.parametrize("heads", [2, 6], ids=["one-each", "grouped"])
def test_attention_is_the_sum_written_out(heads: int) -> None:
    query, key, value = parts(5, heads=heads)
    out = within()(0, query, key, value)
    for h in range(heads):
        b, t, kv = h % BATCH, h % 5, h * HEADS // heads
        expected = naive(query[b, h, t], key[b, kv, : t + 1], value[b, kv, : t + 1])
        assert out[b, h, t].tolist() == pytest.approx(expected, rel=1e-12)


def test_a_mask_only_takes_away() -> None:
    query, key, value = parts(5)
    mask = torch.ones(1, 5, 5, dtype=torch.bool)
    torch.testing.assert_close(within(mask)(0, query, key, value), within()(0, query, key, value))
    mask[:, 4, 1:3] = False
    out = within(mask)(0, query, key, value)
    seen = torch.tensor([0, 3, 4])
    assert out[1, 1, 4].tolist() == pytest.approx(naive(query[1, 1, 4], key[1, 1, seen], value[1, 1, seen]), rel=1e-12)


@pytest.mark.parametrize("positions", [torch.tensor([3, 4, 5]), torch.tensor([[3, 4, 5], [6, 0, 7]])], ids=str)
def test_keys_and_values_lie_at_their_positions_in_their_layer(positions: Tensor) -> None:
    kept, (query, key, value) = cache(), parts(3)
    kept.at(positions)(1, query, key, value)
    assert not kept.store[0].any()
    for b, row in enumerate(positions.expand(BATCH, -1).tolist()):
        assert torch.equal(kept.store[1, 0, b][:, row], key[b])
        assert torch.equal(kept.store[1, 1, b][:, row], value[b])
        assert kept.written[b].nonzero().flatten().tolist() == sorted(row)
    assert int(kept.store.ne(0).sum()) == 2 * key.numel()


def test_a_query_sees_what_was_written_up_to_itself_and_never_a_gap() -> None:
    kept, (query, key, value) = cache(), parts(4)
    kept.store.fill_(50.0)  # an old life's, not written in this one
    kept.at(torch.tensor([0, 1, 5, 8]))(0, query, key, value)
    again, new_key, new_value = parts(1, seed=1)
    out = kept.at(torch.tensor([6]))(0, again, new_key, new_value)
    keys = torch.cat([key[1, 0, :3], new_key[1, 0]])
    values = torch.cat([value[1, 0, :3], new_value[1, 0]])
    assert out[1, 0, 0].tolist() == pytest.approx(naive(again[1, 0, 0], keys, values), rel=1e-12)


def test_nothing_moves() -> None:
    kept = cache()
    addresses = [kept.store.data_ptr(), kept.written.data_ptr()]
    kept.at(torch.arange(4))(0, *parts(4))
    kept.at(torch.tensor([[1], [2]]))(0, *parts(1))
    assert [kept.store.data_ptr(), kept.written.data_ptr()] == addresses
    assert kept.store.shape == (LAYERS, 2, BATCH, HEADS, LENGTH, DIM)


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        (torch.zeros(3), r"positions: torch.float32 \[3\], expected torch.int64 \[T\] or \[2, T\]"),
        (torch.zeros(3, 3, dtype=torch.int64), r"positions: torch.int64 \[3, 3\]"),
        (torch.tensor(0), r"positions: torch.int64 \[\]"),
        (torch.arange(11), "positions: 11 tokens, but there is room for 10"),
        (torch.arange(0), "positions: 0 tokens"),
    ],
)
def test_positions_that_do_not_fit_are_refused(positions: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=f"KV cache: {said}"):
        cache().at(positions)


def test_a_mask_that_does_not_fit_is_refused() -> None:
    cache().at(torch.arange(3), torch.ones(1, 3, LENGTH, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"KV cache: mask: \[1, 3, 3\], expected \[2 or 1, 3, 10\]"):
        cache().at(torch.arange(3), torch.ones(1, 3, 3, dtype=torch.bool))


def test_a_cache_of_no_size_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="KV cache: length: 0 is less than 1"):
        StaticKVCache(1, 1, 1, 0, 4)


def test_attention_with_a_mask_of_all_is_not_causal() -> None:
    """`within` and the caches say what is visible; the sum itself adds no rule of its own."""
    query, key, value = parts(3)
    everything = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    out = attention(query, key, value, everything)
    assert out[0, 0, 0].tolist() == pytest.approx(naive(query[0, 0, 0], key[0, 0], value[0, 0]), rel=1e-12)
