"""Clocks report jumps; timers skip the ticks they missed. Driven by a set clock, so nothing here waits."""

from __future__ import annotations

import pytest

from auras_ros.ros.dds.clock import Clock, ClockChange, ClockType, Duration, JumpThreshold, Time, TimeJump
from auras_ros.ros.dds.timer import Timer

S = 10**9


def set_clock(now_ns: int) -> Clock:
    clock = Clock(clock_type=ClockType.ROS_TIME)
    clock.set_override(now_ns)
    return clock


def test_missed_ticks_are_skipped_on_the_grid() -> None:
    """A stall of 3.5 periods gives one call, and the next tick is on the original grid."""
    clock, calls = set_clock(0), []
    timer = Timer(lambda: calls.append(clock.now_ns()), S, clock)
    for now in (S - 1, S, 4 * S + S // 2, 4 * S + S // 2, 5 * S - 1, 5 * S):
        clock.set_override(now)
        timer.execute()
    assert calls == [S, 4 * S + S // 2, 5 * S]


def test_a_timer_may_be_cancelled_and_reset() -> None:
    clock, calls = set_clock(0), []
    timer = Timer(lambda: calls.append(1), S, clock)
    timer.cancel()
    clock.set_override(5 * S)
    timer.execute()
    assert timer.time_until_next_call() is None
    timer.reset()
    timer.execute()
    assert not calls
    clock.set_override(6 * S)
    timer.execute()
    assert calls == [1]


def test_a_timer_starts_anew_after_a_jump_back() -> None:
    """Guards against a timer that sleeps until simulated time has caught up with its old schedule."""
    clock, calls = set_clock(100 * S), []
    timer = Timer(lambda: calls.append(1), S, clock)
    clock.set_override(2 * S)
    assert timer.time_until_next_call() == S
    clock.set_override(3 * S)
    timer.execute()
    assert calls == [1]


def test_jumps_are_reported_over_their_threshold() -> None:
    clock = set_clock(10 * S)
    jumps: list[TimeJump] = []
    order: list[str] = []
    threshold = JumpThreshold(Duration(seconds=5), Duration(seconds=-1), on_clock_change=False)
    handle = clock.create_jump_callback(
        threshold,
        pre_callback=lambda: order.append("pre"),
        post_callback=lambda j: (order.append("post"), jumps.append(j)),
    )
    clock.set_override(12 * S)
    clock.set_override(int(11.5 * S))
    assert not jumps
    clock.set_override(3 * S)
    clock.set_override(9 * S)
    assert [jump.delta.nanoseconds for jump in jumps] == [3 * S - int(11.5 * S), 6 * S]
    assert order == ["pre", "post"] * 2
    assert {jump.clock_change for jump in jumps} == {ClockChange.ROS_TIME_NO_CHANGE}
    clock.set_override(None)
    assert len(jumps) == 2
    handle.unregister()
    clock.set_override(0)
    assert len(jumps) == 2


def test_activation_is_a_clock_change() -> None:
    clock = Clock(clock_type=ClockType.ROS_TIME)
    changes: list[ClockChange] = []
    threshold = JumpThreshold(None, None, on_clock_change=True)
    clock.create_jump_callback(threshold, post_callback=lambda jump: changes.append(jump.clock_change))
    clock.set_override(1)
    assert clock.ros_time_is_active
    clock.set_override(None)
    clock.set_override(None)
    assert changes == [ClockChange.ROS_TIME_ACTIVATED, ClockChange.ROS_TIME_DEACTIVATED]


def test_only_ros_clocks_are_driven() -> None:
    with pytest.raises(ValueError, match="STEADY_TIME"):
        Clock(clock_type=ClockType.STEADY_TIME).set_override(1)
    with pytest.raises(ValueError, match="callback"):
        set_clock(0).create_jump_callback(JumpThreshold(None, None))


def test_time_arithmetic() -> None:
    early, late = Time(seconds=1), Time(seconds=3, nanoseconds=5)
    assert late - early == Duration(seconds=2, nanoseconds=5)
    assert early + Duration(nanoseconds=2 * S + 5) == late
    assert late - Duration(seconds=2, nanoseconds=5) == early
    assert early < late
    assert Time.from_msg(late.to_msg(), clock_type=ClockType.SYSTEM_TIME) == late
    assert Duration.from_msg(Duration(nanoseconds=-1).to_msg()) == Duration(nanoseconds=-1)
    with pytest.raises(TypeError, match="STEADY_TIME"):
        _ = early < Time(clock_type=ClockType.STEADY_TIME)
    with pytest.raises(ValueError, match="negative"):
        Time(nanoseconds=-1)
