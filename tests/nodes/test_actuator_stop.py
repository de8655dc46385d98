"""The emergency stop as a topic: it latches, releasing it clears nothing, and one that is required must be there."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import numpy as np
import pytest

from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import Bool
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import LATCHED, Child, Children, Watch

BUTTON = """
import signal
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy, DurabilityPolicy, init
from auras_ros.ros.msg import Bool
init(args=[])
qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
button = Node("button").create_publisher(Bool, "emergency_stop", qos)
button.publish(Bool(data=False))
signal.pause()
"""


@pytest.fixture
def driven(actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot) -> FakeAgent:
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    return fake


def test_pressed_latches_a_hold_and_only_disarming_clears_it(driven: FakeAgent, watch: Watch) -> None:
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    watch.until(lambda: watch.actions[-1].label.state == "stopped", "a stopped action")
    first = [heard.label.state for heard in watch.actions].index("stopped")
    assert watch.call("actuator/arm") == (False, "the emergency stop is pressed: release it first")
    button.publish(Bool(data=False))
    watch.state_where(lambda state: state["emergency_stop"] is False, "the release is heard")
    assert watch.call("actuator/arm") == (False, "stopped: emergency stop pressed; disarm first")
    held = watch.actions[first:]
    assert {heard.label.state for heard in held} == {"stopped"}
    assert all(np.array_equal(heard.values, watch.actions[first - 1].values) for heard in held)
    assert watch.call("actuator/disarm") == (True, "disarmed")
    watch.arm()
    watch.armed()


def test_disarming_while_it_is_pressed_does_not_make_it_armable(driven: FakeAgent, watch: Watch) -> None:
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    watch.until(lambda: watch.actions[-1].label.state == "stopped", "a stopped action")
    assert watch.call("actuator/disarm") == (True, "disarmed")
    assert watch.call("actuator/arm") == (False, "the emergency stop is pressed: release it first")


def test_one_that_was_pressed_before_the_actuator_came_is_heard(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Guards against a button that is down while the robot is switched on."""
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    actuator(arm_on_start=True)
    fake.live()
    fake.drive(ramp())
    said = watch.state_where(lambda state: state["emergency_stop"] is True, "it is heard")
    assert said["state"] == "stopped"
    watch.state_where(lambda state: state["tick"] > said["tick"] + 50, "ticks")
    assert watch.sentinel() == []


def test_one_that_is_required_must_be_there_and_is_missed_when_it_dies(
    actuator: Callable[..., Child], children: Children, fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    diagnosed = Diagnosed(watch)
    actuator(require_emergency_stop=True)
    fake.live()
    fake.drive(ramp())
    missing = "no emergency stop: nobody publishes emergency_stop, and require_emergency_stop is set"
    watch.until(lambda: watch.call("actuator/arm") == (False, missing), "the refusal")
    diagnosed.until("actuator: emergency stop", "WARN", "nobody publishes")
    button = children(sys.executable, "-c", BUTTON)
    watch.arm()
    watch.armed()
    diagnosed.until("actuator: emergency stop", "OK", "not pressed")
    button.send(signal.SIGTERM)
    button.wait()
    diagnosed.until("actuator: emergency stop", "WARN", "nobody publishes")
    watch.call("actuator/disarm")
    watch.until(lambda: watch.call("actuator/arm") == (False, missing), "the refusal without it")


def test_a_button_whose_qos_is_too_weak_is_named(actuator: Callable[..., Child], watch: Watch) -> None:
    """A volatile button would not be heard by an actuator that starts later: its QoS is refused, and that is said."""
    diagnosed = Diagnosed(watch)
    watch.node.create_publisher(Bool, "emergency_stop", QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE))
    actuator()
    diagnosed.until("actuator: qos", "WARN", "emergency_stop: incompatible DURABILITY")
