"""Rule 8 of docs/pipeline.md: a chunk's index is counted in actions really executed since its origin."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Limits
from auras_ros.action.align import AlignedChunk, Timeline

TICK = 10


def timeline(*ticks_ns: int, span_ns: int = 1000) -> Timeline:
    line = Timeline(TICK, span_ns, 1)
    for at_ns in ticks_ns:
        line.advance(at_ns)
        line.executed = line.executed + 1.0  # one unit of increments a tick
    return line


def located(line: Timeline, origin_ns: int, now_ns: int = 10_000) -> tuple[int, float] | None:
    origin = line.locate(origin_ns, now_ns)
    return None if origin is None else (origin.count, float(origin.executed[0]))


@pytest.mark.parametrize(
    ("origin_ns", "expected"),
    [(0, (0, 0.0)), (1, (1, 1.0)), (10, (1, 1.0)), (11, (2, 2.0)), (20, (2, 2.0)), (21, (3, 3.0)), (30, (3, 3.0))],
)
def test_an_origin_lies_before_the_next_tick_and_a_tick_at_its_instant_comes_after(
    origin_ns: int, expected: tuple[int, float]
) -> None:
    assert located(timeline(0, 10, 20), origin_ns) == expected


def test_missed_periods_are_counted_and_an_origin_inside_the_gap_lies_between() -> None:
    line = timeline(0, 10)
    assert line.advance(50) == 3
    assert line.count == 5
    assert located(line, 35) == (4, 2.0)
    assert located(line, 50) == (5, 2.0)


def test_late_ticks_do_not_shift_the_grid() -> None:
    """Ticks at 0, 15 (late), 20: the third is number 2, not 3."""
    line = timeline(0, 15, 20)
    assert line.count == 2


def test_ticks_a_little_early_count_as_the_next() -> None:
    line = Timeline(1000, 10_000, 1)
    assert [line.advance(at_ns) for at_ns in (0, 950, 1950, 2990, 4910)] == [0, 0, 0, 0, 1]
    assert line.count == 5


def test_an_origin_just_before_an_early_tick_is_that_tick() -> None:
    line = Timeline(1000, 10_000, 1)
    for at_ns in (0, 950, 1990):
        line.advance(at_ns)
    origin = line.locate(1960, 2000)
    assert origin is not None
    assert origin.count == line.count == 2


def test_every_tick_has_a_number_of_its_own() -> None:
    line = timeline(0, 1, 2, 2)
    assert line.count == 3


def test_an_origin_older_than_the_record_is_unknown() -> None:
    line = timeline(100, 110)
    assert located(line, 99) is None
    assert located(line, 100) == (0, 0.0)


def test_the_record_forgets_the_oldest() -> None:
    line = timeline(*range(0, 1000, TICK), span_ns=100)
    assert located(line, 880) == (88, 88.0)
    assert located(line, 870) is None


def test_before_the_first_tick_only_a_fresh_origin_is_known() -> None:
    line = timeline()
    assert located(line, 95, now_ns=100) == (0, 0.0)
    assert located(line, 90, now_ns=100) == (0, 0.0)
    assert located(line, 89, now_ns=100) is None


def test_after_clear_the_clock_may_start_anew() -> None:
    line = timeline(500, 510)
    line.clear()
    assert line.advance(3) == 0
    assert line.count == 0
    assert located(line, 3) == (0, 2.0)


@given(origin_ns=st.integers(0, 2000), ticks=st.integers(1, 220))
def test_on_a_regular_grid_the_origin_is_its_ceiling(origin_ns: int, ticks: int) -> None:
    now_ns = (ticks - 1) * TICK
    line = Timeline(TICK, 3000, 1)
    for at_ns in range(0, ticks * TICK, TICK):
        line.advance(at_ns)
    if origin_ns <= now_ns + TICK:
        origin = line.locate(origin_ns, now_ns + TICK)
        assert origin is not None
        assert origin.count == -(-origin_ns // TICK)


def placed(make: SimpleNamespace, actions: list[float], line: Timeline, origin_ns: int, **rules: str) -> AlignedChunk:
    contract = make.contract(make.channel(**rules), dt_ms=40e-6)  # dt = 40 ns, 4 ticks
    origin = line.locate(origin_ns, 10_000)
    assert origin is not None
    return AlignedChunk(make.chunk(actions, origin_ns, reference=[5.0]), contract, TICK, origin)


def values(chunk: AlignedChunk, counts: range) -> list[float | None]:
    rows = [chunk.at(count) for count in counts]
    return [None if row is None else float(row[0]) for row in rows]


def test_d_is_the_ceiling_of_executed_time_over_dt(make: SimpleNamespace) -> None:
    chunk = placed(make, [0, 1, 2], timeline(0), 0)
    assert values(chunk, range(10)) == [0, 1, 1, 1, 1, 2, 2, 2, 2, None]
    assert [chunk.index(count) for count in range(10)] == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_linear_goes_straight_between_steps_and_never_beyond_the_last(make: SimpleNamespace) -> None:
    chunk = placed(make, [0, 4, 0], timeline(0), 0, interpolation="linear")
    assert values(chunk, range(10)) == [0, 1, 2, 3, 4, 3, 2, 1, 0, None]


def test_delta_origin_is_a_set_point_on_top_of_the_reference(make: SimpleNamespace) -> None:
    chunk = placed(make, [0, 1, 2], timeline(0), 0, kind="delta_origin")
    assert values(chunk, range(0, 9, 4)) == [5, 6, 7]


def test_an_origin_cannot_lie_after_the_first_tick_that_uses_it(make: SimpleNamespace) -> None:
    chunk = placed(make, [0, 1, 2], timeline(0), 15)  # tick 2 on the grid
    assert chunk.executed_ns(3) == 10
    chunk.start(1)
    assert chunk.executed_ns(3) == 20


def test_nothing_before_the_tick_that_the_values_were_screened_for_is_ever_due(make: SimpleNamespace) -> None:
    """An offer's time and a tick's time come from two threads and may be the wrong way round."""
    line = timeline(0)
    chunk = placed(make, [np.nan, np.nan, 2, 3], line, 0)
    assert chunk.screen(Limits(make.contract(), TICK), 5).ok
    assert values(chunk, range(4, 7)) == [2, 2, 2]


def test_values_are_copied(make: SimpleNamespace) -> None:
    chunk = make.chunk([1.0, 2.0], 0)
    origin = timeline(0).locate(0, 0)
    assert origin is not None
    AlignedChunk(chunk, make.contract(), TICK, origin).values[:] = 9
    np.testing.assert_array_equal(chunk.actions[:, 0], [1.0, 2.0])
