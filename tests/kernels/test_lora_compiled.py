"""The compiled way: its tiles, its threads, and what it leaves to another one.

Guards: the end of a row or of the columns left out, or read beyond; a share that no thread or two take; a row whose
bits depend on what else is in the batch; another OpenMP, or none, that computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("numba")

from auras_ros.kernels import compiled as launching
from auras_ros.kernels import compiled_tiles as tiles
from auras_ros.kernels.grouped_lora import Factors, FactorSet, RowGroup, RowGroups, add_lora_
from auras_ros.kernels.lora_compiled import MANY_ROWS, PIECE, ROWS_OF_SHARE, SHARE, WIDE_ROW, compiled
from auras_ros.kernels.lora_table import FixedWay
from auras_ros.kernels.lora_ways import COMPILED, TILINGS, WAYS
from tests.kernels.lora_examples import Example, wanted


def _never(*_: object) -> None:
    raise AssertionError("left to another way")


WIDTH, BOUNDS = 6 * tiles.LANES + 5, (0, tiles.WIDE + tiles.LANES + 3, 2 * tiles.WIDE + tiles.LANES + 9)
RANKS = {0: 1, 1: 7, 2: 16}


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(params=TILINGS)
def way(request: pytest.FixtureRequest) -> FixedWay:
    return FixedWay(compiled(TILINGS[request.param], _never))


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def example(
    *rows: int, signs: tuple[int, ...] = (1, 1, 1), width: int = WIDTH, bounds: tuple[int, ...] = BOUNDS
) -> Example:
    """rows: of each slot, one after another."""
    begins = [sum(rows[:place]) for place in range(len(rows))]
    groups = tuple((slot, begins[slot], begins[slot] + count, signs[slot]) for slot, count in enumerate(rows))
    return Example(sum(rows), width, bounds, RANKS, groups)


def added(way: FixedWay, case: Example, halves: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    """halves: slots whose factors are in bfloat16."""
    y, x, factors = case.tensors(beside=True)
    factors |= {slot: Factors(*(each.bfloat16() for each in factors[slot])) for slot in halves}
    expected = wanted(y, x, case.rows(), factors, case.bounds)
    add_lora_(y, x, case.rows(), FactorSet(factors), case.bounds, way)
    return y, expected


@pytest.mark.parametrize("halves", [(), (1,), (0, 1, 2)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 20, 3 * ROWS_OF_SHARE])
def test_all_tiles_and_shares_make_the_plain_sum(
    count: int, halves: tuple[int, ...], threads: int, way: FixedWay
) -> None:
    case = example(count, count, count, signs=(1, -1, 1))
    work = sum(count * rank * (2 * WIDTH + BOUNDS[-1]) for rank in RANKS.values())
    made, expected = added(way, case, halves)
    torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-3)
    assert count < 3 * ROWS_OF_SHARE or work >= 3 * SHARE  # so that all threads have a share


@pytest.mark.parametrize("halves", [(), (2,)])
def test_rows_in_pieces(halves: tuple[int, ...], threads: int, way: FixedWay) -> None:
    width = WIDE_ROW + 2 * PIECE + 5
    made, expected = added(way, example(5, 3, MANY_ROWS + 3, width=width), halves)
    torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=width**0.5 * 1e-4)


def test_more_rows_than_a_tile_has(way: FixedWay) -> None:
    rows = max(each.rows for each in TILINGS.values())
    made, expected = added(way, example(5, rows + 7, 2 * rows + 1), (1,))
    torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("halves", [(), (0, 2)])
def test_more_outputs_than_are_read_at_once(halves: tuple[int, ...], threads: int, way: FixedWay) -> None:
    columns = TILINGS[COMPILED].columns
    made, expected = added(way, example(3, 0, 7, bounds=(0, 9, 3 * columns + 5)), halves)
    torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-3)


def test_a_rows_bits_do_not_depend_on_what_else_is_in_the_batch(threads: int, way: FixedWay) -> None:
    y, x, factors = example(60, 60, 60).tensors(beside=True)
    together, alone = y.clone(), y.clone()
    held = FactorSet(factors)
    add_lora_(together, x, RowGroups([RowGroup(2, 0, 60), RowGroup(1, 60, 180)]), held, BOUNDS, way)
    for row in (0, 33, 59, 60, 179):
        slot = 2 if row < 60 else 1
        add_lora_(alone, x, RowGroups([RowGroup(slot, row, row + 1)]), held, BOUNDS, way)
        assert torch.equal(together[row], alone[row])


def test_another_openmp_means_one_thread(way: FixedWay, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    by_team, _ = added(way, example(9, 50, 50))
    monkeypatch.setattr(launching, "_openmp", lambda: None)
    alone, _ = added(way, example(9, 50, 50))
    torch.set_num_threads(threads)
    assert torch.equal(by_team, alone)


@pytest.mark.parametrize("what", ["half", "B as PEFT has it", "rows apart in x", "columns apart in y"])
def test_what_it_cannot_read_is_left_to_another_way(what: str, way: FixedWay) -> None:
    case = example(3, 3, 3)
    y, x, factors = case.tensors(
        dtype=torch.bfloat16 if what == "half" else torch.float32, beside=what != "B as PEFT has it"
    )
    if what == "columns apart in y":
        y = y.t().contiguous().t()
    if what == "rows apart in x":
        x = x.t().contiguous().t()
    with pytest.raises(AssertionError, match="left to another way"):
        add_lora_(y, x, case.rows(), FactorSet(factors), case.bounds, way)


def test_another_way_gets_factors_in_the_rows_type() -> None:
    case, segmented = example(3, 3, 3), FixedWay(compiled(TILINGS[COMPILED], WAYS["segmented"]))
    y, x, factors = case.tensors(beside=True)
    y = y.t().contiguous().t()
    halves = {slot: Factors(*(part.bfloat16() for part in each)) for slot, each in factors.items()}
    expected = wanted(y, x, case.rows(), halves, case.bounds)
    add_lora_(y, x, case.rows(), FactorSet(halves), case.bounds, segmented)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-3)
