"""Two publishers of commands: said within a second by whoever of them is ours, and nobody arms beside another."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import MS, RELIABLE, Child, Children, Watch

SAID_WITHIN_MS = 1000
BUSY_MS = 500  # room for a machine that has other work
FORGOTTEN_S = 8.0  # the least that a killed participant is still known: ten, but for the last news of it


def test_a_second_publisher_is_named_within_a_second_and_refuses_arming(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    diagnosed = Diagnosed(watch)
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    diagnosed.until("actuator: command topic", "OK", "only this node")
    tick = watch.states[-1]["tick"]
    later = tick + 150 * DISCOVERY_NS // 10**9
    watch.state_where(lambda state: state["tick"] > later, "more time than two that appear at once have")
    other = watch.node.create_publisher(Float64MultiArray, "action", 1)
    begin_ns = time.monotonic_ns()
    said = watch.state_where(lambda state: state["conflict"] == ["/watch on action"], "the conflict by name")
    assert said["mono_ns"] - begin_ns <= (SAID_WITHIN_MS + BUSY_MS) * MS
    diagnosed.until("actuator: command topic", "ERROR", "conflict: /watch on action publishes commands too")
    watch.drives_on()  # a stranger's publisher does not take the robot from its driver
    watch.call("actuator/disarm")
    armed, reason = watch.call("actuator/arm")
    assert not armed
    assert reason.startswith("conflict: /watch on action publishes commands too (")
    assert "forgotten after 10 s" in reason, "how long it lasts where that process was killed"
    watch.node.destroy_publisher(other)
    diagnosed.until("actuator: command topic", "OK", "only this node")
    watch.arm()


def test_one_that_shows_just_after_arming_takes_the_robot_from_its_driver(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Guards against two that appear at once: each is armed before it knows of the other."""
    actuator(code="m.DISCOVERY_NS = 30 * 10**9")  # it may be busy for longer than one
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    watch.node.create_publisher(Float64MultiArray, "action", 1)
    said = watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
    assert re.match("conflict: (/watch|a node of unknown name) on action", said["reason"])


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
    armed, reason = watch.call("rival/arm")
    assert not armed
    assert reason.startswith("conflict: /actuator on action publishes commands too (")


def test_a_second_trajectory_publisher_is_a_conflict_too(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    from auras_ros.ros.msg import JointTrajectory

    actuator(joint_trajectory=True)
    fake.live()
    watch.node.create_publisher(JointTrajectory, "joint_trajectory", 1)
    named = ["/watch on joint_trajectory"]  # DDS may tell of the publisher before it tells whose it is
    watch.state_where(lambda state: state["conflict"] == named, "the conflict by name")


# -- processes that were killed or stopped ----------------------------------------------------------------


def test_one_that_comes_back_after_a_kill_is_not_kept_waiting(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Everybody else still knows the dead one's publisher then. Guards against a rule that asks somebody else."""
    fake.live()
    fake.drive(ramp())
    first = actuator(arm_on_start=True)
    watch.armed()
    killed_s = first.send(signal.SIGKILL) / 1e9
    first.wait()
    actuator(arm_on_start=True)  # a call of its service could still go to the dead one's
    watch.armed()
    known = watch.node.count_publishers("action")
    if time.monotonic() - killed_s > FORGOTTEN_S:
        pytest.skip(f"the second one took longer to start than the first one is known ({FORGOTTEN_S:g} s)")
    assert known == 2, "both are known here, the dead one included"
    assert watch.states[-1]["conflict"] == []


def test_one_of_the_same_name_counts_while_it_is_stopped_and_until_a_killed_one_is_forgotten(
    actuator: Callable[..., Child], watch: Watch
) -> None:
    """What is silent may go on any moment: nothing is concluded from silence."""
    first = actuator()
    watch.state_where(lambda state: True, "the first one")
    actuator()

    def both() -> bool:
        """Each says so: the ticks of the two go up and down."""
        last = watch.states[-20:]
        falls = [b for a, b in pairwise(last) if b["tick"] < a["tick"]]
        return bool(falls) and all(state["conflict"] == ["/actuator on action"] for state in last)

    watch.until(both, "both see the conflict")
    stopped_ns = first.send(signal.SIGSTOP)
    later_ns = stopped_ns + 1500 * MS  # longer than the lease on its commands
    said = watch.state_where(lambda state: state["mono_ns"] > later_ns, "the second one's word")
    assert said["conflict"] == ["/actuator on action"]
    first.send(signal.SIGKILL)
    watch.state_where(lambda state: not state["conflict"], "the killed one is forgotten")


def test_arming_again_while_commands_are_sent_does_not_ask_where_the_robot_is(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Guards against a robot that its policy moves to and fro, which rclpy 7.1 shows like two publishers."""
    actuator(place_tolerance=0.0)
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    other = watch.node.create_publisher(JointState, "joint_states", 10)
    watch.until(lambda: other.get_subscription_count() > 0, "the actuator's reader")
    for _ in range(5):
        other.publish(robot.joint_states(position=(200.0, 200.0)))
        tick = watch.states[-1]["tick"]
        watch.state_where(lambda state, tick=tick: state["tick"] > tick + 5, "time in which it was heard")
        assert watch.call("actuator/arm")[0]
    watch.call("actuator/disarm")

    def is_refused() -> bool:
        other.publish(robot.joint_states(position=(200.0, 200.0)))
        answer = watch.call("actuator/arm")[1]
        watch.call("actuator/disarm")
        return answer.startswith("joint_states: ")

    watch.until(is_refused, "it is refused while it is disarmed")
