"""A grid of ticks that never makes up for lost ones, and statistics that say what happened.

Guards: a burst of ticks after an overrun; a drift of the grid; a first interval measured from the beginning of time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.clock import VirtualClock
from auras_ros.nodes.actuator import realtime
from auras_ros.nodes.actuator.realtime import IntervalMeter, TickGrid, enter_realtime

PERIOD_NS = 10


def test_ticks_stand_on_an_absolute_grid() -> None:
    clock = VirtualClock(3)
    grid = TickGrid(clock, PERIOD_NS)
    woken = []
    for work_ns in (0, 4, 9, 1):
        woken.append(grid.wait())
        clock.advance(work_ns)
    assert woken == [13, 23, 33, 43]
    assert grid.skipped == 0


@pytest.mark.parametrize(
    ("work_ns", "woken_ns", "skipped", "next_ns"),
    [
        (9, 20, 0, 30),
        (10, 20, 0, 30),
        (15, 25, 0, 30),  # late, but before the tick after
        (20, 30, 1, 40),
        (35, 45, 2, 50),
        (1000, 1010, 99, 1020),
    ],
)
def test_missed_ticks_are_skipped_and_counted_and_never_made_up(
    work_ns: int, woken_ns: int, skipped: int, next_ns: int
) -> None:
    clock = VirtualClock()
    grid = TickGrid(clock, PERIOD_NS)
    assert grid.wait() == 10
    clock.advance(work_ns)
    assert grid.wait() == woken_ns
    assert grid.skipped == skipped
    assert grid.wait() == next_ns
    assert grid.skipped == skipped


@given(st.lists(st.integers(0, 100), min_size=1, max_size=50))
def test_every_grid_point_is_either_served_or_skipped(work_ns: list[int]) -> None:
    clock = VirtualClock()
    grid = TickGrid(clock, PERIOD_NS)
    last = 0
    for served, work in enumerate(work_ns, start=1):
        woken = grid.wait()
        assert woken > last
        assert woken // PERIOD_NS == served + grid.skipped
        last = woken
        clock.advance(work)


@pytest.mark.parametrize("period_ns", [0, -5])
def test_a_period_of_nothing_is_refused(period_ns: int) -> None:
    with pytest.raises(ValueError, match=f"got {period_ns}"):
        TickGrid(VirtualClock(), period_ns)


def measured(intervals_ns: list[int], size: int = 3000, warmup: int = 1) -> IntervalMeter:
    meter, now_ns = IntervalMeter(1_000_000, size, warmup), 5_000_000_000
    meter.tick(now_ns)
    for interval_ns in intervals_ns:
        now_ns += interval_ns
        meter.tick(now_ns)
    return meter


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=60), st.integers(5, 30))
def test_percentiles_are_numpys_over_the_newest(intervals_ns: list[int], size: int) -> None:
    summary = measured(intervals_ns, size).summary()
    assert summary is not None
    errors_ms = np.abs(np.array(intervals_ns[-size:]) - 1_000_000) / 1e6
    assert summary.n == len(errors_ms)
    assert summary.p50 == pytest.approx(np.percentile(errors_ms, 50))
    assert summary.p99 == pytest.approx(np.percentile(errors_ms, 99))
    assert summary.max == pytest.approx(errors_ms.max())


def test_early_and_late_are_both_errors() -> None:
    summary = measured([900_000, 1_100_000]).summary()
    assert summary is not None
    assert (summary.p50, summary.max) == pytest.approx((0.1, 0.1))


def test_warm_up_ticks_are_left_out() -> None:
    summary = measured([9_000_000, 9_000_000, 1_000_000, 1_000_000], warmup=3).summary()
    assert summary is not None
    assert (summary.n, summary.max) == (2, 0.0)


def test_the_first_tick_has_no_interval_even_without_warm_up() -> None:
    summary = measured([1_000_000], warmup=0).summary()
    assert summary is not None
    assert (summary.n, summary.max) == (1, 0.0)


def test_nothing_is_said_before_the_first_interval() -> None:
    assert measured([]).summary() is None
    assert measured([1_000_000], warmup=2).summary() is None


@pytest.fixture
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switch_interval")
def test_priority_0_leaves_the_scheduling_class_alone() -> None:
    before = os.sched_getscheduler(0)
    assert enter_realtime(0) == "other (not asked for)"
    assert os.sched_getscheduler(0) == before
    assert sys.getswitchinterval() == pytest.approx(realtime.SWITCH_INTERVAL_S)


@pytest.mark.usefixtures("switch_interval")
def test_what_is_not_permitted_is_said_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert enter_realtime(50).startswith("other (not permitted: needs rtprio")


@pytest.mark.usefixtures("switch_interval")
def test_the_priority_asked_for_is_the_one_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda thread, policy, param: asked.append((thread, policy, param.sched_priority))
    )
    assert enter_realtime(42) == "fifo 42"
    assert asked == [(0, os.SCHED_FIFO, 42)]


@pytest.mark.usefixtures("switch_interval")
def test_all_threads_are_raised_and_one_that_has_ended_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(thread: int, policy: int, param: os.sched_param) -> None:
        asked.append(thread)
        if len(asked) == 1:
            raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(os, "listdir", lambda path: ["11", "12", "13"])
    monkeypatch.setattr(os, "sched_setscheduler", note)
    assert enter_realtime(42, all_threads=True) == "fifo 42"
    assert asked == [11, 12, 13]
