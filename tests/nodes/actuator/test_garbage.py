"""600 actions live at 100 Hz under garbage from another process: on the wire, none beyond the limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.ros import qos_profile_sensor_data
from auras_ros.ros.msg import JointState
from tests.nodes.controllers import channel, contract_folder
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import Loop
from tests.nodes.wire import PATIENT, Children, Heard, Watch

ACTIONS = 600
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


def even(actions: Sequence[Heard]) -> NDArray[np.bool_]:
    """For each action but the first and the last: whether no tick was missed or late beside it."""
    ticks, times_ns = (np.array([getattr(heard.label, name) for heard in actions]) for name in ("tick", "mono_ns"))
    good = (np.diff(ticks) == 1) & (np.diff(times_ns) < 1.5e9 / RATE_HZ)
    return np.asarray(good[1:] & good[:-1])


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
    actuator = children.node("actuator", given, code=PATIENT)
    children(sys.executable, "-m", "tests.nodes.children.garbage_agent", "7", arm)
    watch.arm()
    for count in range(ACTIONS, 20 * ACTIONS, ACTIONS // 4):
        watch.until(lambda n=count: len(watch.actions) >= n, f"{count} actions")
        if even(watch.actions).sum() > ACTIONS / 2:
            break
    assert actuator.process.poll() is None
    actions = watch.actions
    states = [heard.label.state for heard in actions]
    assert states.count("armed") > ACTIONS / 5  # it was driven
    assert states.count("holding") > ACTIONS / 20  # and refused
    values = np.stack([heard.values for heard in actions])
    assert np.isfinite(values).all()
    assert (np.abs(values) <= 3.0).all()
    steps = np.diff(values, axis=0)
    assert (np.abs(steps) <= 2.0 / RATE_HZ + 1e-9).all()  # of a tick that comes late too, and never of two at once
    assert even(actions).sum() > ACTIONS / 2
    changes = np.abs(np.diff(steps, axis=0))[even(actions)]
    assert (changes <= ACCELERATION / RATE_HZ**2 + 1e-9).all()
    refused = watch.states[-1]["counters"]["refused"]
    assert {"non_finite", "over_limit"} <= set(refused)
    assert watch.states[-1]["unreadable"] > 0
    status = diagnosed.until("actuator: chunks", "WARN", "refused")
    assert "unreadable" in status.message
    assert int(diagnosed.values("actuator: chunks")["refused non_finite"]) > 0
    diagnosed.until("actuator: limits", "OK", "limited: joint_1")
