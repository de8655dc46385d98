"""1,000 actions live at 100 Hz under garbage from another process: on the wire, none beyond the limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from auras_ros.ros import qos_profile_sensor_data
from auras_ros.ros.msg import JointState
from tests.nodes.controllers import channel, contract_folder
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import Loop
from tests.nodes.wire import Children, Watch

ACTIONS = 1000
RATE_HZ = 100.0
ACCELERATION = 12.0
NAMES = [f"joint_{n}" for n in range(1, 8)]
JOINTS = [channel(name, max_rate=2.0, max_acceleration=ACCELERATION) for name in NAMES]


@pytest.fixture
def arm(tmp_path: Path, watch: Watch) -> Iterator[str]:
    """A contract with all three limits, and the arm's joint states."""
    topic = watch.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    loop = Loop(0.05, lambda: topic.publish(JointState(name=NAMES, position=[0.5] * len(NAMES))))
    yield contract_folder(tmp_path / "arm", JOINTS)
    loop.close()


@pytest.mark.slow
@pytest.mark.parametrize("seam", ["blend", "ensemble"])
def test_no_action_is_beyond_its_limits_whatever_the_agent_sends(
    children: Children, watch: Watch, arm: str, seam: str
) -> None:
    """Value, rate and acceleration of each action that was published, in the order and at the ticks of their labels.

    Where a tick was missed, so was its period: the steps beside it are judged by the time that passed.
    """
    diagnosed = Diagnosed(watch)
    given = {"checkpoint": arm, "agent_timeout_ms": 1000.0, "rate_hz": RATE_HZ, "seam": seam}
    actuator = children.node("actuator", given)
    children(sys.executable, "-m", "tests.nodes.children.garbage_agent", "7", arm)
    watch.arm()
    watch.until(lambda: len(watch.actions) >= ACTIONS, f"{ACTIONS} actions")
    assert actuator.process.poll() is None
    actions = watch.actions
    states = [heard.label.state for heard in actions]
    assert states.count("armed") > ACTIONS / 5  # it was driven
    assert states.count("holding") > ACTIONS / 20  # and refused
    values, ticks = np.stack([heard.values for heard in actions]), np.array([heard.label.tick for heard in actions])
    seconds = np.diff([heard.label.mono_ns for heard in actions]) / 1e9
    assert np.isfinite(values).all()
    assert (np.abs(values) <= 3.0).all()
    steps = np.diff(values, axis=0)
    assert (np.diff(ticks) == 1).mean() > 0.9
    assert (np.abs(steps) <= 2.0 / RATE_HZ + 1e-9).all()  # of a tick that comes late too, and never of two at once
    even = np.diff(ticks) == 1
    both = even[1:] & even[:-1] & (seconds[1:] < 1.5 / RATE_HZ) & (seconds[:-1] < 1.5 / RATE_HZ)
    assert both.sum() > ACTIONS / 2
    changes = np.abs(np.diff(steps, axis=0))[both]
    assert (changes <= ACCELERATION / RATE_HZ**2 + 1e-9).all()
    refused = watch.states[-1]["counters"]["refused"]
    assert {"non_finite", "over_limit"} <= set(refused)
    assert watch.states[-1]["unreadable"] > 0
    status = diagnosed.until("actuator: chunks", "WARN", "refused")
    assert "unreadable" in status.message
    assert int(diagnosed.values("actuator: chunks")["refused non_finite"]) > 0
    diagnosed.until("actuator: limits", "OK", "limited: joint_1")
