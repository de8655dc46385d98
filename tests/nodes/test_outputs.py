"""The forms of a command: when a trajectory's first point is reached, and which field of a twist a channel is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Contract, Horizon, Provenance
from auras_ros.nodes.outputs import reach_ns, trajectory_message, twist_message
from auras_ros.ros.msg import TimeMsg
from tests.nodes.controllers import channel, stamp

MS = 1_000_000
DT_MS = 50
NOW = TimeMsg(sec=7, nanosec=5)


def contract(*channels: dict[str, object]) -> Contract:
    return Contract.from_dict({"dt_ms": DT_MS, "channels": list(channels)})


def horizon(first: list[float], origin_ns: int, index: int) -> Horizon:
    return Horizon(index, np.array([first]), Provenance(origin_stamp_ns=0, origin_mono_ns=origin_ns))


RATED = contract(channel("a", max_rate=2.0), channel("b", max_rate=None))


@given(st.floats(-0.1, 0.1), st.floats(-3.0, 3.0), st.integers(0, DT_MS * MS - 1))
def test_the_first_point_is_reached_at_the_end_of_its_step_unless_a_rate_needs_longer(
    move: float, free: float, into_step_ns: int
) -> None:
    """`move` is what the horizon was checked for: at most the rate times one policy step."""
    now_ns = 4 * DT_MS * MS + into_step_ns
    first_ns = reach_ns(RATED, horizon([move, free], 0, 4), np.zeros(2), now_ns)
    left_ns = DT_MS * MS - into_step_ns
    assert 0 < first_ns <= DT_MS * MS
    assert first_ns >= left_ns
    assert abs(move) <= 2.0 * first_ns / 1e9 + 1e-6
    if abs(move) <= 2.0 * left_ns / 1e9 - 1e-6:
        assert first_ns == left_ns


def test_where_an_acceleration_is_limited_it_takes_the_whole_step_that_was_checked() -> None:
    slow = contract(channel("a", max_acceleration=5.0))
    assert reach_ns(slow, horizon([0.0], 0, 0), np.zeros(1), 49 * MS) == DT_MS * MS


def test_points_are_one_policy_step_apart() -> None:
    message = trajectory_message(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), RATED, 20 * MS, NOW)
    assert list(message.joint_names) == ["a", "b"]
    assert [stamp(point.time_from_start) for point in message.points] == [20 * MS, 70 * MS, 120 * MS]
    assert [list(point.positions) for point in message.points] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert stamp(message.header.stamp) == 7_000_000_005


def test_each_channel_is_the_field_of_its_name_whatever_the_order() -> None:
    names = ["angular.z", "linear.y", "linear.x", "angular.x", "linear.z", "angular.y"]
    made = twist_message(np.arange(1.0, 7.0), contract(*(channel(name, "velocity") for name in names)), NOW)
    linear, angular = made.twist.linear, made.twist.angular
    assert (linear.x, linear.y, linear.z) == (3.0, 2.0, 5.0)
    assert (angular.x, angular.y, angular.z) == (4.0, 6.0, 1.0)
    assert made.header.frame_id == "base_link"
