"""Time behind one interface: virtual time passes only when told to, real time never goes back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.clock import MonotonicClock, SchedulerClock, VirtualClock, difference_ns


def test_virtual_time_stands_still_until_somebody_moves_it() -> None:
    clock = VirtualClock(5)
    assert [clock.now_ns(), clock.now_ns()] == [5, 5]
    clock.advance(3)
    assert clock.now_ns() == 8
    clock.sleep_until_ns(20)
    assert clock.now_ns() == 20


def test_virtual_sleep_until_the_past_returns_at_once() -> None:
    clock = VirtualClock(100)
    clock.sleep_until_ns(99)
    assert clock.now_ns() == 100


def test_virtual_time_cannot_be_turned_back() -> None:
    clock = VirtualClock(10)
    with pytest.raises(ValueError, match="got -1"):
        clock.advance(-1)
    assert clock.now_ns() == 10


def test_the_hosts_time_since_boot_counts_what_it_was_suspended() -> None:
    clock: SchedulerClock = MonotonicClock()
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    now = clock.boot_ns()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**12))))
def test_virtual_time_never_goes_back(moves: list[tuple[bool, int]]) -> None:
    clock = VirtualClock()
    for sleep, value in moves:
        before = clock.now_ns()
        if sleep:
            clock.sleep_until_ns(value)
            assert clock.now_ns() == max(before, value)
        else:
            clock.advance(value)
            assert clock.now_ns() == before + value


def test_monotonic_time_is_the_hosts() -> None:
    clock: SchedulerClock = MonotonicClock()
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    now = clock.now_ns()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def test_monotonic_sleep_never_returns_early() -> None:
    clock = MonotonicClock()
    for wait_ns in (-1_000_000, 0, 1, 1_500_000):
        at_ns = clock.now_ns() + wait_ns
        clock.sleep_until_ns(at_ns)
        assert clock.now_ns() >= at_ns


def test_monotonic_sleep_goes_on_after_an_early_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleep that comes back early (a signal, a coarse timer) is slept again."""
    real, naps = time.sleep, list[float]()

    def short(seconds: float) -> None:
        naps.append(seconds)
        real(0 if len(naps) == 1 else seconds)

    monkeypatch.setattr(time, "sleep", short)
    clock = MonotonicClock()
    for _ in range(5):  # a machine that stands still may be past it before the first nap
        naps.clear()
        at_ns = clock.now_ns() + 100_000_000
        clock.sleep_until_ns(at_ns)
        assert clock.now_ns() >= at_ns
        if len(naps) > 1:
            break
    assert len(naps) > 1


def test_a_wait_between_two_clocks_is_no_difference() -> None:
    now, waits_ns = [0], iter([80_000_000, 30_000_000, 0])

    def other_ns() -> int:
        now[0] += next(waits_ns)
        return now[0] + 1000

    assert difference_ns(other_ns, lambda: now[0]) == 1000


def test_where_every_reading_waits_the_shortest_wait_counts() -> None:
    now, waits_ns = [0], iter([80_000_000, 30_000_000, 50_000_000, 40_000_000, 60_000_000])

    def other_ns() -> int:
        now[0] += next(waits_ns)
        return now[0] + 1000

    assert difference_ns(other_ns, lambda: now[0]) == 1000 + 15_000_000
