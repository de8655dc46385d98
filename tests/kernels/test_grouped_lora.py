"""Every way to add low-rank products against the plain sum, row by row.

Guards: a row with another row's adapter; a row that nobody has and that changes; the wrong sign or part; a rank taken
for another's; a joined copy of factors that are no longer there; copies that pile up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import accumulate

import pytest
import torch

from auras_ros.bench.lora.baselines import BASELINES
from auras_ros.kernels import lora_forms
from auras_ros.kernels.grouped_lora import Factors, FactorSet, RowGroup, RowGroups, add_lora_
from auras_ros.kernels.lora_factors import KEPT
from auras_ros.kernels.lora_forms import join, join_packed
from auras_ros.kernels.lora_table import FixedWay
from auras_ros.kernels.lora_ways import WAYS
from tests.kernels.lora_examples import EXAMPLES, Example, wanted

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

ALL = {**WAYS, **BASELINES}


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def check(example: Example, way: str, seed: int = 0, beside: bool = True) -> None:
    y, x, factors = example.tensors(seed, beside=beside)
    expected = wanted(y, x, example.rows(), factors, example.bounds)
    add_lora_(y, x, example.rows(), FactorSet(factors), example.bounds, FixedWay(ALL[way]))
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("way", ALL)
@pytest.mark.parametrize("name", EXAMPLES)
def test_each_way_is_the_plain_sum(name: str, way: str) -> None:
    for beside in (True, False):
        check(EXAMPLES[name], way, beside=beside)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    slots = draw(st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=4))
    ranks = {slot: draw(st.integers(1, 9)) for slot in slots}
    sizes = [draw(st.integers(0, 6)) for _ in slots]
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    ends = [before, *(before + end for end in accumulate(sizes))]
    groups = [(slot, begin, end) for slot, begin, end in zip(slots, ends, ends[1:], strict=False)]
    if draw(st.booleans()):  # the merged adapter, which some of the rows have to get rid of
        groups = [(draw(st.sampled_from(slots)), before, ends[-1], -1), *groups]
    tokens = max(1, ends[-1] + after)
    order = tuple(draw(st.permutations(range(tokens)))) if draw(st.booleans()) else None
    parts = draw(st.lists(st.integers(1, 13), min_size=1, max_size=3))
    return Example(tokens, draw(st.integers(1, 40)), (0, *accumulate(parts)), ranks, tuple(groups), order)


@settings(max_examples=60)
@given(example=examples(), seed=st.integers(0, 9))
def test_all_ways_agree_on_any_batch(example: Example, seed: int) -> None:
    with torch.inference_mode():
        for way in ALL:
            check(example, way, seed)


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_no_group_keep_their_bits(way: str) -> None:
    example = EXAMPLES["ragged, unaligned"]
    y, x, factors = example.tensors(beside=True)
    kept = y.clone()
    add_lora_(y, x, example.rows(), FactorSet(factors), example.bounds, FixedWay(WAYS[way]))
    assert torch.equal(y[6:9], kept[6:9])
    assert not torch.equal(y[9], kept[9])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [None, (0, 2, 1, 3)])
def test_a_number_that_is_not_finite_stays_in_its_adapters_rows(way: str, order: tuple[int, ...] | None) -> None:
    example = Example(4, 8, (0, 6), {0: 2, 1: 2}, ((0, 0, 2), (1, 2, 4)), order)
    y, x, factors = example.tensors(beside=True)
    factors[1].a.fill_(torch.finfo(torch.float32).max)
    add_lora_(y, x, example.rows(), FactorSet(factors), example.bounds, FixedWay(WAYS[way]))
    others = [2, 3] if order is None else [1, 3]
    assert y.isfinite().all(1).tolist() == [row not in others for row in range(4)]


@pytest.mark.parametrize("way", WAYS)
def test_bfloat16_is_rounded_as_bfloat16(way: str) -> None:
    example = EXAMPLES["deLoRA"]
    y, x, factors = example.tensors(dtype=torch.bfloat16)
    expected = wanted(y, x, example.rows(), factors, example.bounds)
    add_lora_(y, x, example.rows(), factors, example.bounds, FixedWay(WAYS[way]))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), expected, rtol=0.05, atol=0.5)


def test_without_onednn_its_ways_multiply_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor or in a build that has no blocks."""
    monkeypatch.setattr(lora_forms, "_has_blocks", lambda dtype: False)
    for way in ("blocked", "packed", "mixed", "joint-packed", "joint-mixed"):
        for example in EXAMPLES.values():
            check(example, way)


def test_outputs_that_lie_apart_in_memory() -> None:
    """y is a part of a wider tensor."""
    example = EXAMPLES["rows apart, three parts"]
    y, x, factors = example.tensors(beside=True)
    expected = wanted(y, x, example.rows(), factors, example.bounds)
    for way in WAYS:
        wide = torch.cat([y, y], 1)
        add_lora_(wide[:, : y.shape[1]], x, example.rows(), factors, example.bounds, FixedWay(WAYS[way]))
        torch.testing.assert_close(wide[:, : y.shape[1]].double(), expected, rtol=1e-4, atol=1e-3)
        assert torch.equal(wide[:, y.shape[1] :], y)


def factors(rank: int, seed: int) -> Factors:
    random = torch.Generator().manual_seed(seed)
    return Factors(torch.randn(rank, 16, generator=random), torch.randn(rank, 8, generator=random).t())


@pytest.mark.parametrize("way", ["joint", "joint-packed", "packed", "mixed", "padded", "gathered", "compiled"])
def test_a_slot_that_is_filled_anew_is_read_anew(way: str) -> None:
    """Its memory is the old adapter's: only the set is told."""
    if way not in WAYS:
        pytest.skip(f"{way}: needs numba")
    held = FactorSet({0: factors(2, 1), 1: factors(2, 2)})
    x, made = torch.ones(2, 16), list[torch.Tensor]()
    for _ in range(2):
        y = torch.zeros(2, 8)
        add_lora_(y, x, RowGroups([RowGroup(0, 0, 1), RowGroup(1, 1, 2)]), held, (0, 8), FixedWay(WAYS[way]))
        made.append(y)
        other = held.pop(1)
        for mine, its in zip(other, factors(2, 3), strict=True):
            mine.copy_(its)
        held[1] = other
    assert torch.equal(made[0][0], made[1][0])
    torch.testing.assert_close(made[1][1], factors(2, 3).b @ (factors(2, 3).a @ x[1]))


def test_gathered_factors_are_the_batchs_though_another_adapter_comes_or_goes_meanwhile() -> None:
    """In another thread, between the batch and the copy of all factors."""
    x, y = torch.ones(2, 16), torch.zeros(2, 8)
    held = FactorSet({slot: factors(2, slot) for slot in (1, 2)})
    expected = torch.stack([held[2].b @ (held[2].a @ x[0]), held[1].b @ (held[1].a @ x[1])])
    batch = RowGroups([RowGroup(2, 0, 1), RowGroup(1, 1, 2)]).batch(held.kind, x)
    held[0] = factors(2, 0)
    WAYS["gathered"](y, x, batch, held, (0, 8))
    torch.testing.assert_close(y, expected)
    batch = RowGroups([RowGroup(2, 0, 1), RowGroup(1, 1, 2)]).batch(held.kind, x)
    del held[0]
    WAYS["gathered"](y.zero_(), x, batch, held, (0, 8))
    torch.testing.assert_close(y, expected)


def test_few_copies_are_kept_and_one_adapter_needs_none() -> None:
    held = FactorSet({slot: factors(2, slot) for slot in range(5)})
    assert held.form(join, (3,), (0, 8)).a.data_ptr() == held[3].a.data_ptr()
    for _ in range(KEPT):
        for other in range(1, 5):
            held.form(join, (0, other), (0, 8))
            held.form(join_packed, (0, other), (0, 8))
    assert sum(len(slots) for _, slots in held._copies) <= KEPT * len(held)
    assert held.form(join, (0, 4), (0, 8)) is held.form(join, (0, 4), (0, 8))


def test_layers_of_one_kind_share_what_is_made_of_a_batch() -> None:
    rows = RowGroups([RowGroup(0, 0, 1), RowGroup(1, 1, 3)])
    layers = [FactorSet({0: factors(2, seed), 1: factors(4, seed)}) for seed in (1, 2)]
    other = FactorSet({0: factors(2, 1), 1: factors(2, 1)})
    x = torch.zeros(3, 16)
    assert rows.batch(layers[0].kind, x) is rows.batch(layers[1].kind, x)
    assert rows.batch(other.kind, x) is not rows.batch(layers[0].kind, x)


def test_a_set_that_changes_leaves_what_others_read() -> None:
    """Adapters come and go in another thread than the forwards'."""
    held = FactorSet({0: factors(2, 0)})
    slots, addresses, kind = held.by_slot, held.addresses, held.kind
    held[1] = factors(4, 1)
    assert list(slots) == [0]
    assert kind.ranks == {0: 2}
    assert held.kind.ranks == {0: 2, 1: 4}
    assert (addresses is None) == (held.addresses is None)
    del held[0]
    assert list(slots) == [0]
    assert list(held.by_slot) == [1]


def test_products_go_on_while_adapters_come_and_go() -> None:
    """By every way, in a thread whose slots stay."""
    example = next(iter(EXAMPLES.values()))
    y, x, own = example.tensors(beside=True)
    held, expected = FactorSet(own), wanted(y, x, example.rows(), own, example.bounds)
    other, ended = next(iter(own.values())), threading.Event()

    def change() -> None:
        while not ended.is_set():
            for slot in range(100, 120):
                held[slot] = other
            for slot in range(100, 120):
                del held[slot]

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for way in WAYS.values():
            for _ in range(20):
                made = y.clone()
                add_lora_(made, x, example.rows(), held, example.bounds, FixedWay(way))
                torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-4)
    finally:
        ended.set()
        changing.join()
