"""Arm, disarm and stop: what they do on the wire, and why they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from auras_ros.ros import qos_profile_sensor_data
from auras_ros.ros.msg import JointState
from tests.nodes.stand_ins import FakeAgent, Loop, Robot, ramp
from tests.nodes.wire import Child, Watch


@pytest.fixture
def driven(actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot) -> Robot:
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    return robot


def test_disarm_publishes_one_last_hold_and_then_nothing(driven: Robot, watch: Watch) -> None:
    """The sentinel is the actuator's own: the first action after it is armed again, reliable and in order."""
    assert watch.call("actuator/disarm") == (True, "disarmed")
    watch.until(lambda: watch.actions[-1].label.state == "disarmed", "the last action")
    last, count = watch.actions[-1], len(watch.actions)
    assert last.label.source == "hold"
    np.testing.assert_array_equal(last.values, watch.actions[-2].values)
    watch.state_where(lambda state: state["tick"] > last.label.tick + 20, "twenty ticks without a word")
    watch.arm()
    watch.armed()
    sentinel = watch.actions[count].label
    assert sentinel.tick > last.label.tick + 20
    assert [heard.label.state for heard in watch.actions].count("disarmed") == 1


def test_stop_latches_a_hold_until_disarmed(driven: Robot, watch: Watch) -> None:
    assert watch.call("actuator/stop") == (True, "stopped")
    watch.until(lambda: watch.actions[-1].label.state == "stopped", "a stopped action")
    first = [heard.label.state for heard in watch.actions].index("stopped")
    assert watch.call("actuator/arm") == (False, "stopped: stop requested; disarm first")
    watch.until(lambda: watch.count("stopped") >= 3, "chunks refused while stopped")
    stopped = watch.actions[first:]
    assert {(heard.label.state, heard.label.source) for heard in stopped} == {("stopped", "stop")}
    assert all(np.array_equal(heard.values, watch.actions[first - 1].values) for heard in stopped)
    assert watch.call("actuator/disarm") == (True, "disarmed")
    watch.arm()
    watch.armed()


def test_arming_needs_to_know_where_the_robot_is(actuator: Callable[..., Child], fake: FakeAgent, watch: Watch) -> None:
    """Nothing was ever published: there is no place to hold, and none is invented."""
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.until(lambda: watch.states and watch.states[-1]["agent"] == "fake", "the agent's heartbeat heard")
    done, why = watch.call("actuator/arm")
    assert not done
    assert "joint_states" in why
    watch.state_where(lambda state: state["tick"] > 50, "ticks")
    assert watch.states[-1]["state"] == "disarmed"
    assert watch.sentinel() == []


@pytest.fixture
def lost_robot(watch: Watch) -> Iterator[Robot]:
    """One that reports a position off the table."""
    robot = Robot(watch.node)
    robot.joints = False
    loop = Loop(0.05, lambda: robot.joints_topic.publish(robot.joint_states(position=(700.0, 300.0))))
    yield robot
    loop.close()
    robot.close()


def test_arming_is_refused_outside_the_limits(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, lost_robot: Robot
) -> None:
    actuator()
    fake.live()
    watch.until(lambda: watch.states and watch.states[-1]["agent"] == "fake", "the agent's heartbeat heard")
    watch.until(lambda: "outside" in watch.call("actuator/arm")[1], "the refusal")
    done, why = watch.call("actuator/arm")
    assert (done, "agent_x" in why, "700" in why) == (False, True, True)
    assert watch.sentinel() == []


@pytest.mark.parametrize(
    ("names", "position"), [(["agent_y", "wrist"], [1.0, 2.0]), (["agent_x", "agent_y"], [float("nan"), 2.0])]
)
def test_arming_is_refused_where_one_channels_position_is_unknown(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, names: list[str], position: list[float]
) -> None:
    """Its first command would have no place to start from, and no limit to how far it jumps."""
    actuator()
    fake.live()
    joints = watch.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    loop = Loop(0.05, lambda: joints.publish(JointState(name=names, position=position)))
    try:
        watch.until(lambda: watch.states and watch.states[-1]["agent"] == "fake", "the agent's heartbeat heard")
        watch.until(lambda: "no position of agent_x" in watch.call("actuator/arm")[1], "the refusal")
        assert watch.sentinel() == []
    finally:
        loop.close()


def test_arming_is_refused_while_the_agent_is_silent(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    actuator()
    watch.until(lambda: watch.call("actuator/arm")[1] == "agent 'agent' is silent: start it first", "the refusal")
    fake.beat()
    watch.until(lambda: watch.call("actuator/arm")[0] or fake.beat(), "armed once it beats")


def test_arm_on_start_arms_once_and_never_again(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Guards against an actuator that arms itself behind the back of whoever disarmed it."""
    actuator(arm_on_start=True)
    fake.live()
    fake.drive(ramp())
    watch.armed()
    watch.call("actuator/disarm")
    watch.until(lambda: watch.actions[-1].label.state == "disarmed", "the last action")
    watch.until(lambda: watch.count("disarmed") >= 3, "chunks refused while disarmed")
    assert watch.states[-1]["state"] == "disarmed"
    assert watch.actions[-1].label.state == "disarmed"
