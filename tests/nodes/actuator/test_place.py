"""Where the robot is: joined from every driver's messages by name, each with its age, and watched against what the
commands explain."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Contract
from auras_ros.nodes.actuator.position import PositionMonitor
from auras_ros.nodes.common.texts import MessageError
from tests.nodes.controllers import channel

MS = 1_000_000
CONTRACT = Contract.from_dict(
    {"dt_ms": 100.0, "channels": [channel("a"), channel("b"), channel("wheel", kind="velocity", unit="rad/s")]}
)
STILL = np.array([0.5, 0.5, 0.0])


def told(place: PositionMonitor, now_ns: int, *, commanded: np.ndarray | None = None, **joints: float) -> str:  # type: ignore[type-arg]
    """A message of these joints, after a command; what jumped."""
    if commanded is not None:
        place.commanded(commanded)
    place.take(list(joints), np.array(list(joints.values())), now_ns, watching=commanded is not None)
    return place.jumped()


def test_joints_of_several_drivers_are_joined_each_with_its_age() -> None:
    place = PositionMonitor(CONTRACT, 0.1)
    assert place.position is None
    assert place.age_ns(0) is None
    told(place, 0, a=0.1, gripper=9.0)
    assert place.unknown == "b"
    told(place, 300 * MS, b=0.2)
    assert place.unknown == ""  # a wheel's velocity needs no place
    assert place.position is not None
    np.testing.assert_array_equal(place.position, [0.1, 0.2, math.nan])
    assert place.age_ns(400 * MS) == 400 * MS  # the oldest
    assert place.silent(500 * MS) == ""
    assert "no new position of a for more than 500 ms" in place.silent(501 * MS)
    told(place, 600 * MS, a=0.1)
    assert place.silent(700 * MS) == ""


def test_a_joint_that_is_moved_by_rates_or_increments_may_not_fall_silent_either() -> None:
    """Once it was told of: an arm moved by increments drives on unseen otherwise. One that nobody tells of is none."""
    moved = [channel("a", kind="delta_previous", hold="zero"), channel("wheel", kind="velocity", unit="rad/s")]
    place = PositionMonitor(Contract.from_dict({"dt_ms": 100.0, "channels": moved}), 0.1)
    assert place.silent(900 * MS) == ""
    told(place, 1000 * MS, a=0.1)
    assert place.silent(1500 * MS) == ""
    assert "no new position of a for more than 500 ms" in place.silent(1501 * MS)
    off = PositionMonitor(CONTRACT, 0.0)
    told(off, 0, a=0.1)
    assert off.silent(900 * MS) == ""


def test_a_name_that_comes_twice_is_refused_with_all_that_stands_beside_it() -> None:
    place = PositionMonitor(CONTRACT, 0.1)
    with pytest.raises(MessageError, match="'a' is named twice"):
        place.take(["a", "b", "a"], np.array([0.1, 0.2, 5.0]), 0)
    assert place.position is None


def test_numbers_that_are_none_say_nothing() -> None:
    place = PositionMonitor(CONTRACT, 0.1)
    told(place, 0, a=0.1, b=0.2)
    told(place, 400 * MS, a=math.nan, b=0.2)
    assert "no new position of a" in place.silent(600 * MS)


def test_a_robot_that_is_put_elsewhere_has_jumped() -> None:
    place = PositionMonitor(CONTRACT, 0.1)
    told(place, 0, a=0.5, b=0.5, commanded=STILL)
    assert told(place, 20 * MS, a=0.6, b=0.5, commanded=STILL) == ""
    assert "a is at 2" in told(place, 40 * MS, a=2.0, b=0.5, commanded=STILL)
    assert place.jumped() == "", "said once"


def test_many_names_cost_little() -> None:
    """As many as a message may hold: whoever looks each up among those before it is busy for seconds."""
    names = [f"{number:x}" for number in range(14_000)]
    times_s: list[float] = []
    for _ in range(5):
        began_s = time.monotonic()
        with pytest.raises(MessageError, match="named twice"):
            PositionMonitor(CONTRACT, 0.1).take([*names, names[-1]], np.zeros(len(names) + 1), 0)
        times_s.append(time.monotonic() - began_s)
    assert min(times_s) < 0.5


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_driver_that_begins_a_turn_anew_tells_of_no_jump(direction: float) -> None:
    """A wrist that is sent on and on, its driver's words within [-pi, pi]; b is told of in the same way, and has an
    end."""
    place = PositionMonitor(CONTRACT, 0.02)
    place.turns = [math.tau, math.inf, math.inf]
    for step in range(400):
        at = direction * 0.05 * step
        wrapped = math.remainder(at, math.tau)
        assert told(place, step * 20 * MS, a=wrapped, b=0.5, commanded=np.array([at + 0.05, 0.5, 0.0])) == ""
        assert place.position is not None
        assert place.position[0] == wrapped  # what is told is not changed
    assert "a is at" in told(place, 8000 * MS, a=wrapped + direction, b=0.5, commanded=np.array([at, 0.5, 0.0]))


def test_a_wrap_of_a_joint_that_has_an_end_is_a_jump() -> None:
    place = PositionMonitor(CONTRACT, 0.1)
    place.turns = [math.tau, math.inf, math.inf]
    end = np.array([0.5, 3.1, 0.0])
    told(place, 0, a=0.5, b=3.1, commanded=end)
    assert "b is at -3.1" in told(place, 20 * MS, a=0.5, b=-3.1, commanded=end)


@pytest.mark.parametrize("sent", [3.2, 3.2 - math.tau])
def test_commands_may_wrap_or_not(sent: float) -> None:
    place = PositionMonitor(CONTRACT, 0.05)
    place.turns = [math.tau, math.inf, math.inf]
    told(place, 0, a=3.1, b=0.5, commanded=np.array([3.1, 0.5, 0.0]))
    for step in range(1, 200):
        at = math.remainder(min(3.2, 3.1 + 0.01 * step), math.tau)
        assert told(place, step * 20 * MS, a=at, b=0.5, commanded=np.array([sent, 0.5, 0.0])) == ""


@pytest.mark.parametrize("tolerance", [0.1, 1.0])
def test_silence_explains_no_jump(tolerance: float) -> None:
    """Guards against a robot that is switched off and on again somewhere else; and a table that may reset itself, and
    so is watched loosely, is another one after it was gone."""
    place = PositionMonitor(CONTRACT, tolerance)
    told(place, 0, a=0.5, b=0.5, commanded=STILL)
    assert "b is at -1" in told(place, 5000 * MS, a=0.5, b=-1.0, commanded=STILL)


def sweep(place: PositionMonitor, from_ms: int) -> int:
    """a is sent from 0 to 1 and back, and follows; the time after that, ms."""
    for at in (0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0):
        assert told(place, from_ms * MS, a=at, b=0.5, commanded=np.array([at, 0.5, 0.0])) == ""
        from_ms += 150
    return from_ms


@pytest.mark.parametrize("tolerance", [0.1, 1.0])
def test_where_commands_went_before_a_silence_is_elsewhere_after_it(tolerance: float) -> None:
    """A simulator that is started again puts its robot where the old one has just been by our commands."""
    place = PositionMonitor(CONTRACT, tolerance)
    now_ms = sweep(place, 0) + 600
    assert "a is at 0.9" in told(place, now_ms * MS, a=0.9, b=0.5, commanded=np.array([0.0, 0.5, 0.0]))


def test_one_that_comes_back_where_it_was_or_was_sent_has_not_jumped() -> None:
    """The network was away, and the robot on its way to the newest command."""
    for back in (0.0, 0.5, 0.9):
        place = PositionMonitor(CONTRACT, 0.01)
        now_ms = sweep(place, 0)
        place.commanded(np.array([0.9, 0.5, 0.0]))
        held = np.array([0.9, 0.5, 0.0])
        assert told(place, (now_ms + 600) * MS, a=back, b=0.5, commanded=held) == ""
        assert told(place, (now_ms + 620) * MS, a=0.9, b=0.5, commanded=held) == ""


def test_a_robot_that_is_dragged_away_step_by_step_has_jumped() -> None:
    """Each step is small, and the command stands still: what is a tolerance in one message is none in a hundred."""
    place, jumps = PositionMonitor(CONTRACT, 0.1), []
    told(place, 0, a=0.5, b=0.5, commanded=STILL)
    for step in range(1, 100):
        jumps.append(told(place, step * 10 * MS, a=0.5 + 0.02 * step, b=0.5, commanded=STILL))
    assert any(jumps)


def test_a_driver_that_repeats_one_frozen_state_says_nothing_new() -> None:
    place, positions = PositionMonitor(CONTRACT, 0.1), np.array([0.1, 0.2])
    for step in range(7):
        place.take(["a", "b"], positions, step * 100 * MS, stamp_ns=5)
    assert "no new position of a" in place.silent(600 * MS)
    place.take(["a", "b"], positions, 650 * MS, stamp_ns=6)
    assert place.silent(700 * MS) == ""


@pytest.mark.parametrize(("tolerance", "commanded"), [(0.0, STILL), (0.1, None)])
def test_nobody_is_watched_who_is_not_to_be(tolerance: float, commanded: np.ndarray | None) -> None:  # type: ignore[type-arg]
    place = PositionMonitor(CONTRACT, tolerance)
    told(place, 0, a=0.5, b=0.5, commanded=commanded)
    assert told(place, 20 * MS, a=3.0, b=0.5, commanded=commanded) == ""


@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=20), st.floats(0.05, 1.0))
def test_a_robot_that_follows_its_commands_never_jumps(goals: list[float], pace: float) -> None:
    """Whatever it is sent, and however slowly it comes after, it is between where it was and where it was sent."""
    place, at, now_ns = PositionMonitor(CONTRACT, 0.01), 0.0, 0
    for goal in goals:
        for _ in range(5):
            now_ns += 20 * MS
            at += pace * (goal - at)
            assert told(place, now_ns, a=at, b=0.0, commanded=np.array([goal, 0.0, 0.0])) == ""
