"""Which weights a forward has, by hand-made dispatches, and an engine whose second copy is computed once.

Guards: weights that cost more products than the others; another adapter's weights computed for a moment's luck; a
forward that has other weights than the one beside it; a computation where a choice is enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from auras_ros.engine.options import EngineOptions
from auras_ros.engine.per_forward import TIMES, PerForward
from auras_ros.engine.scheduler import MOST_MISSED, PRODUCT_SHARE, Dispatch, EngineState, InterleavedScheduler, products
from auras_ros.engine.valora import make_lora_scheduler
from auras_ros.lora.slots import Resident
from tests.engine.test_valora import A, B, C, Inner, queue, state_of

MS = 1_000_000


def dispatch(adapters: str, counts: tuple[int, ...] = ()) -> Dispatch:
    requests = tuple(queue(adapters))
    return Dispatch("prefill" if counts else "decode", requests, counts or (1,) * len(requests))


@pytest.mark.parametrize(
    ("adapters", "counts", "base", "merged"),
    [("a", (), 1, 0), ("aab", (), 3, 2), ("ab-", (), 2, 3), ("--", (), 0, 2), ("bc", (), 2, 4), ("ab", (9, 2), 11, 4)],
)
def test_products_of_a_forward(adapters: str, counts: tuple[int, ...], base: int, merged: int) -> None:
    asked = dispatch(adapters, counts)
    assert (products(asked, None), products(asked, A)) == (base, merged)


def weights(state: EngineState) -> Resident | None:
    found = PerForward(Inner()).next(state)
    assert found is not None
    assert len(found.requests) == len(state.queues["decode"])  # nobody waits
    return found.merged


@pytest.mark.parametrize(
    ("adapters", "wanted"),
    [("a", A), ("aab", A), ("ab", None), ("abb", None), ("aa-", A), ("a-", None), ("-", None), ("b", None)],
)
def test_a_forward_has_the_weights_that_take_fewer_products(adapters: str, wanted: Resident | None) -> None:
    """A's are there, in use or not."""
    for merged in (None, A):
        state = state_of(*queue(adapters), merged=merged)
        state.lora.summed = (A,)
        assert weights(state) is wanted


def test_one_that_was_read_again_has_its_weights_still_and_is_where_it_is_now() -> None:
    state, moved = state_of(*queue("aa")), replace(A, slot=5)
    for each in state.queues["decode"]:
        each.resident = moved
    state.lora.summed = (A,)
    assert weights(state) is moved
    assert products(Dispatch("decode", tuple(state.queues["decode"]), (1, 1)), A) == 0
    state.lora.used(moved)
    assert [each.slot for each in state.lora.summed if each is not None] == [5]


def test_other_weights_are_computed_once_they_would_have_paid_several_times() -> None:
    state = state_of(*queue("bb"), switch_ms=10)
    state.lora.summed = (A,)
    every_ms = 100  # a forward of two rows with B, each of which could have been spared a product
    while state.lora.missed_ns.get("b", 0) + PRODUCT_SHARE * every_ms * MS <= TIMES * 10 * MS:
        assert weights(state) is None
        state.lora.ran(dispatch("bb"), every_ms * MS)
    state.lora.ran(dispatch("bb"), every_ms * MS)
    assert weights(state) is B


def test_what_another_adapter_would_have_cost_counts_against_it() -> None:
    lora = state_of().lora
    lora.summed = (A,)
    lora.ran(dispatch("bbb"), 40 * MS)
    missed_ns = lora.missed_ns["b"]
    lora.ran(dispatch("aab"), 20 * MS)  # a third of the rows would have paid for two
    assert 0 < lora.missed_ns["b"] < missed_ns
    lora.ran(dispatch("aaaa"), 40 * MS)
    assert not lora.missed_ns


def test_of_adapters_that_come_and_go_only_some_are_remembered() -> None:
    lora = state_of().lora
    for number in range(MOST_MISSED + 9):
        (each,) = dispatch("b").requests
        each.resident = replace(B, digest=f"b{number}")
        lora.ran(Dispatch("decode", (each,), (1,)), (1 + number) * MS)
    assert len(lora.missed_ns) == MOST_MISSED
    assert "b0" not in lora.missed_ns
    assert f"b{MOST_MISSED + 8}" in lora.missed_ns


def test_with_a_free_copy_it_has_to_pay_once_and_takes_nobodys_place() -> None:
    state = state_of(*queue("bb"), switch_ms=10)
    state.lora.summed = (None, A)
    state.lora.ran(dispatch("bb"), round(9 * MS / PRODUCT_SHARE))
    assert weights(state) is None
    state.lora.ran(dispatch("bb"), round(2 * MS / PRODUCT_SHARE))
    state.lora.missed_ns["c"] = 1.0
    assert weights(state) is B
    state.lora.used(B)
    assert state.lora.summed == (A, B)
    assert state.lora.missed_ns == {"c": 1.0}
    for adapters, wanted in (("aa", A), ("bb", B), ("ab", None), ("aab", A), ("cc", None)):
        state.queues["decode"][:] = queue(adapters)
        assert weights(state) is wanted


def test_the_longest_unused_copy_goes_once_others_would_have_paid_several_times() -> None:
    state = state_of(*queue("cc"), switch_ms=10)
    state.lora.summed = (A, B)
    every_ms = 100
    while state.lora.missed_ns.get("c", 0) + PRODUCT_SHARE * every_ms * MS <= TIMES * 10 * MS:
        assert weights(state) is None
        state.lora.ran(dispatch("cc"), every_ms * MS)
    state.lora.ran(dispatch("cc"), every_ms * MS)
    missed_ns = state.lora.missed_ns["c"]
    state.lora.ran(dispatch("bb"), every_ms * MS)  # B's stay whoever comes
    assert state.lora.missed_ns["c"] == missed_ns
    state.lora.ran(dispatch("aa"), every_ms * MS // 2)  # A's would be gone
    assert state.lora.missed_ns["c"] < missed_ns
    state.lora.ran(dispatch("cc"), every_ms * MS)
    assert weights(state) is C
    state.lora.used(C)
    assert state.lora.summed == (B, C)
    assert not state.lora.missed_ns
    state.lora.used(B)
    assert state.lora.summed == (C, B)


def test_the_first_adapter_is_merged_at_once() -> None:
    state = state_of(*queue("b"))
    assert weights(state) is None
    state.lora.ran(dispatch("b"), MS)
    assert weights(state) is B


def test_two_that_run_side_by_side_have_the_same_weights() -> None:
    state = state_of(*queue("aa"))
    state.lora.summed = (A,)
    state.running["prefill"] = Dispatch("prefill", ())
    assert weights(state) is None
    state.running = {"vision": Dispatch("vision", ())}
    assert weights(state) is A


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_exact": False}, "lora_policy: per-forward needs lora_exact; without it choose valora"),
        ({"lora_thetas": "a=3"}, "lora_thetas: per-forward lets nobody wait; choose lora_policy valora"),
        ({"lora_policy": "best"}, "lora_policy: 'best' is none of per-forward, valora, dlora, merge-only, unmerge"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_lora_scheduler(InterleavedScheduler(64, chunked=False), EngineOptions(max_loras=2, **changes))
