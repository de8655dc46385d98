"""Rate, acceleration and room to brake: whatever is wanted, no command breaks them, and what is allowed is followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import ContractError, Limits
from auras_ros.action.motion import Motion, largest_pace

TICK_NS = 10_000_000
SECONDS = TICK_NS * 1e-9
FINITE = st.floats(-1e12, 1e12)


def braking(pace: float, change: float) -> float:
    """The way to rest from a pace, tick by tick."""
    way, pace = 0.0, abs(pace) - change
    while pace > 0:
        way, pace = way + pace, pace - change
    return way


def motion(make: SimpleNamespace, *channels: Any) -> Motion:
    return Motion(Limits(make.contract(*channels), TICK_NS), TICK_NS)


def position(make: SimpleNamespace, acceleration: float = 1e4, **rules: Any) -> Motion:
    """One set point in [-100, 100] that may change its pace by 1 a tick (by default)."""
    moved = motion(make, make.channel(max_acceleration=acceleration, **rules))
    moved.anchor = np.zeros(1)
    return moved


def play(moved: Motion, wanted: Any, follow: bool = True) -> list[float]:
    commands = [moved.advance(np.array([float(w)]), follow) for w in wanted]
    return [float(c[0]) for c in commands if c is not None]


@given(room=st.floats(0, 1e6), change=st.floats(1e-3, 1e3))
def test_the_largest_pace_leaves_just_enough_room(room: float, change: float) -> None:
    pace = float(largest_pace(np.array([room]), np.array([change]))[0])
    assert pace >= 0
    assert pace + braking(pace, change) <= room * (1 + 1e-9) + 1e-9
    more = pace + 1e-3 * change
    assert more + braking(more, change) > room


def test_no_room_is_no_pace() -> None:
    assert largest_pace(np.array([0.0, -1.0]), np.ones(2)).tolist() == [0.0, 0.0]


@given(
    wanted=st.lists(st.tuples(FINITE, st.booleans()) | st.just((0.0, False)), max_size=60),
    rate=st.sampled_from([None, 50.0, 470.0, 1e5]),
    acceleration=st.sampled_from([33.0, 1e3, 1e4, 1e7]),
    start=st.floats(-100, 100),
)
def test_whatever_is_wanted_every_bound_holds_and_it_can_always_stop(
    make: SimpleNamespace, wanted: Any, rate: float | None, acceleration: float, start: float
) -> None:
    moved = motion(make, make.channel(max_rate=rate, max_acceleration=acceleration))
    moved.anchor = np.array([start])
    change, step = acceleration * SECONDS**2, (rate or np.inf) * SECONDS
    pace, last = 0.0, start
    for goal, follow in wanted:
        value = float(moved.advance(np.array([goal]), follow)[0])
        before, pace, last = pace, value - last, value
        assert -100 <= value <= 100
        assert abs(pace) <= step + 1e-9
        assert abs(pace - before) <= change + 1e-9
        assert value + np.copysign(braking(pace, change), pace) <= 100 + 1e-6
        assert value + np.copysign(braking(pace, change), pace) >= -100 - 1e-6


@given(paces=st.lists(st.floats(-1, 1), max_size=50), start=st.floats(-20, 20))
def test_an_allowed_trajectory_is_followed_exactly(make: SimpleNamespace, paces: list[float], start: float) -> None:
    """Paces that change by at most 1 a tick, and are within the room to brake: nothing is limited."""
    moved = position(make)
    moved.anchor = np.array([start])
    wanted, pace = [start], 0.0
    for change in paces:
        pace += 0.999 * change
        pace = max(-5.0, min(5.0, pace))
        goal = wanted[-1] + pace
        if abs(goal) + braking(pace, 1.0) > 99:
            break
        wanted.append(goal)
    assert play(moved, wanted[1:]) == wanted[1:]


@pytest.mark.parametrize("goal", [0.3, 1.0, 1.5, 3.0, 50.0, 100.0, -77.7])
@pytest.mark.parametrize("follow", [True, False])
def test_a_goal_that_stands_is_reached_and_never_passed(make: SimpleNamespace, goal: float, follow: bool) -> None:
    """Without the braking curve a step would swing about its goal for ever."""
    way = play(position(make), [goal] * 60, follow)
    assert way[-1] == goal
    assert max(np.sign(goal) * np.array(way)) <= abs(goal) + 1e-9


def test_a_goal_that_moves_is_caught_up_with(make: SimpleNamespace) -> None:
    """From rest after a goal at 4 a tick: behind at first, then on it and staying there."""
    wanted = [-80.0 + 4.0 * k for k in range(40)]
    moved = position(make, max_rate=1000.0)
    moved.anchor = np.array([-80.0])
    way = play(moved, wanted)
    assert way[3] < wanted[3] - 5
    assert way[20:35] == pytest.approx(wanted[20:35])
    assert max(np.array(way) - np.array(wanted)) <= 1e-9, "it arrives with the goal's pace"


def test_a_trajectory_after_a_hold_starts_from_a_goal_that_stands(make: SimpleNamespace) -> None:
    """What a hold left undone is no trajectory: taken for one it would be run after, and the goal passed."""
    moved = position(make)
    way = play(moved, [90.0] * 6)
    for _ in range(3):
        way += play(moved, [way[-1]], follow=False)
    goal = way[-1] + 6.0
    assert max(play(moved, [goal] * 20)) == pytest.approx(goal)


def test_missed_periods_start_anew_from_rest(make: SimpleNamespace) -> None:
    moved = position(make)
    way = play(moved, [90.0] * 6)
    moved.stand()
    assert play(moved, [90.0])[0] - way[-1] == pytest.approx(1.0)


def test_a_first_command_stands_where_it_is_put(make: SimpleNamespace) -> None:
    moved = motion(make, make.channel(max_acceleration=1e4))
    assert play(moved, [50.0, 60.0, 60.0]) == [50.0, 51.0, 53.0]


def test_increments_change_by_the_acceleration_and_are_all_made(make: SimpleNamespace) -> None:
    """What is wanted of an increment is what is left of the path: 12 in all, then nothing more, none too many."""
    moved = motion(make, make.channel(kind="delta_previous", max_acceleration=1e4, upper=2.5, lower=-2.5))
    done, sent = 0.0, []
    for _ in range(20):
        sent.append(float(moved.advance(np.array([12.0 - done]), True)[0]))
        done += sent[-1]
    assert done == pytest.approx(12.0)
    assert min(sent) >= -1e-9
    assert max(sent) == 2.5
    assert max(abs(np.diff([0.0, *sent]))) <= 1.0 + 1e-9


def test_of_a_velocity_the_smaller_of_rate_and_acceleration_holds(make: SimpleNamespace) -> None:
    for rate, acceleration, expected in ((None, 300.0, 3.0), (500.0, 300.0, 3.0), (200.0, 300.0, 2.0)):
        moved = motion(make, make.channel(kind="velocity", max_rate=rate, max_acceleration=acceleration))
        assert play(moved, [50.0]) == [expected]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_moves_nothing(make: SimpleNamespace, bad: float) -> None:
    moved = position(make)
    play(moved, [50.0] * 3)
    pace, anchor = moved.pace.copy(), moved.anchor.copy()
    assert moved.advance(np.array([bad]), True) is None
    assert (moved.pace.tolist(), moved.anchor.tolist()) == (pace.tolist(), anchor.tolist())


def test_channels_without_a_bound_are_as_free_as_ever(make: SimpleNamespace) -> None:
    moved = motion(make, make.channel("a", max_acceleration=1e4), make.channel("b"), make.channel("c", max_rate=500.0))
    moved.anchor = np.zeros(3)
    values = moved.advance(np.full(3, 90.0), True)
    assert values is not None
    assert values.tolist() == [1.0, 90.0, 5.0]


@given(commands=st.lists(st.floats(-100, 100), min_size=1, max_size=30), ratio=st.integers(2, 10))
def test_looking_ahead_in_coarse_periods_obeys_the_bounds_from_where_the_robot_is(
    make: SimpleNamespace, commands: list[float], ratio: int
) -> None:
    moved = position(make, acceleration=2e3, max_rate=900.0)
    play(moved, commands)
    before = moved.anchor.copy(), moved.pace.copy(), np.array(moved.undone)
    ahead = moved.coarse(ratio * TICK_NS)
    change, pace, last = 2e3 * (ratio * SECONDS) ** 2, float(moved.pace[0]) * ratio, float(moved.anchor[0])
    for goal in [*commands, -100.0, 100.0, 100.0, 100.0]:
        value = float(ahead.advance(np.array([goal]), True)[0])
        assert -100 <= value <= 100
        assert abs(value - last - pace) <= change + 1e-9
        pace, last = value - last, value
        assert abs(pace) <= 900.0 * ratio * SECONDS + 1e-9
    for now, then in zip((moved.anchor, moved.pace, moved.undone), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    "rules",
    [
        {"max_acceleration": 0.05},  # sqrt(200 / 0.05) = 63 s
        {"max_acceleration": 1.0, "max_rate": 61.0, "lower": -1e9, "upper": 1e9},
        {"kind": "velocity", "max_rate": 1.6},
        {"kind": "velocity", "max_acceleration": 1.6},
        {"kind": "delta_previous", "max_acceleration": 160.0},  # 100 in a tick of 10 ms is 10,000 a second
        {"max_acceleration": 5e-324},
    ],
)
def test_a_channel_that_could_not_stop_within_a_minute_is_refused(make: SimpleNamespace, rules: Any) -> None:
    with pytest.raises(ContractError, match=r"'x': max_acceleration: .* s to brake"):
        Limits(make.contract(make.channel(**rules)), TICK_NS)


@pytest.mark.parametrize(
    "rules",
    [
        {"max_acceleration": 0.06},
        {"max_acceleration": 1.0, "max_rate": 59.0, "lower": -1e300, "upper": 1e300},
        {"kind": "velocity", "max_rate": 1.7},
        {"max_acceleration": 1e300},
    ],
)
def test_extreme_bounds_that_can_be_kept_are_kept(make: SimpleNamespace, rules: Any) -> None:
    moved = motion(make, make.channel(**rules))
    moved.anchor = np.zeros(1)
    way = play(moved, [1e299, -1e299, 5.0, 0.0])
    assert np.isfinite(way).all()
