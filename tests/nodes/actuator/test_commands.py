"""The forms of a command: which field of a twist a channel is, and its stamp."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from auras_ros.action import Contract
from auras_ros.nodes.actuator.commands import ros_time_of, twist_message
from auras_ros.ros.msg import TimeMsg
from tests.nodes.controllers import channel


def test_each_channel_is_the_field_of_its_name_whatever_the_order() -> None:
    names = ["angular.z", "linear.y", "linear.x", "angular.x", "linear.z", "angular.y"]
    contract = Contract.from_dict({"dt_ms": 50, "channels": [channel(name, "velocity") for name in names]})
    made = twist_message(np.arange(1.0, 7.0), contract, TimeMsg(sec=7, nanosec=5))
    linear, angular = made.twist.linear, made.twist.angular
    assert (linear.x, linear.y, linear.z) == (3.0, 2.0, 5.0)
    assert (angular.x, angular.y, angular.z) == (4.0, 6.0, 1.0)
    assert made.header.frame_id == "base_link"


def test_a_tick_is_stamped_by_when_it_began() -> None:
    """Guards against a stamp that is as late as the thread has waited since."""
    clock: Any = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=10_000_000_005))
    monotonic: Any = SimpleNamespace(now_ns=lambda: 7_500_000_000)
    assert ros_time_of(7_000_000_000, clock, monotonic) == TimeMsg(sec=9, nanosec=500_000_005)
    begun: Any = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=3))
    assert ros_time_of(7_000_000_000, begun, monotonic) == TimeMsg(sec=0, nanosec=0)
