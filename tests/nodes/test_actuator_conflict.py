"""Two publishers of commands: said within a second by whoever of them is ours, and nobody arms beside another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from auras_ros.ros.msg import Float64MultiArray, String
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import MS, RELIABLE, Child, Children, Watch

SAID_WITHIN_MS = 1000
BUSY_MS = 500  # room for a machine that has other work


def test_a_second_publisher_is_named_within_a_second_and_refuses_arming(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    diagnosed = Diagnosed(watch)
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    diagnosed.until("actuator: command topic", "OK", "alone")
    begin_ns = time.monotonic_ns()
    other = watch.node.create_publisher(Float64MultiArray, "action", 1)
    said = watch.state_where(lambda state: state["conflict"], "the conflict")
    assert said["conflict"] == ["/watch on action"]
    assert said["mono_ns"] - begin_ns <= (SAID_WITHIN_MS + BUSY_MS) * MS
    diagnosed.until("actuator: command topic", "ERROR", "conflict: /watch on action publishes commands too")
    assert watch.states[-1]["state"] == "armed"  # a stranger's publisher does not take the robot from its driver
    watch.call("actuator/disarm")
    assert watch.call("actuator/arm") == (False, "conflict: /watch on action publishes commands too")
    watch.node.destroy_publisher(other)
    diagnosed.until("actuator: command topic", "OK", "alone")
    watch.arm()


def test_two_actuators_that_fight_both_say_so(
    actuator: Callable[..., Child],
    children: Children,
    fake: FakeAgent,
    watch: Watch,
    robot: Robot,
    checkpoint: str,
) -> None:
    """Neither can be armed while the other is there: not even where one of them has driven already."""
    diagnosed = Diagnosed(watch)
    seconds: list[dict[str, Any]] = []
    watch.node.create_subscription(String, "rival/state", lambda m: seconds.append(json.loads(m.data)), RELIABLE)
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    children.node("actuator", {"checkpoint": checkpoint, "arm_on_start": True}, "-r", "__node:=rival")
    diagnosed.until("actuator: command topic", "ERROR", "/rival on action")
    diagnosed.until("rival: command topic", "ERROR", "/actuator on action")
    count = len(seconds)
    watch.until(lambda: len(seconds) > count + 20, "a second of the rival's states")
    assert {state["state"] for state in seconds} == {"disarmed"}
    tells = watch.call("rival/arm")
    assert tells == (False, "conflict: /actuator on action publishes commands too")


def test_a_second_trajectory_publisher_is_a_conflict_too(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    from auras_ros.ros.msg import JointTrajectory

    actuator(joint_trajectory=True)
    fake.live()
    watch.node.create_publisher(JointTrajectory, "joint_trajectory", 1)
    said = watch.state_where(lambda state: state["conflict"], "the conflict")
    assert said["conflict"] == ["/watch on joint_trajectory"]
