"""One suite for every ROS: the real nodes as processes, asserted at the receiving end of the wire.

Guards: a node that behaves otherwise under rclpy than under our layer.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from auras_ros.ros.msg import Bool, Image, JointState, String
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import BEST_EFFORT, LATCHED, RELIABLE, Child, Children, Watch
from tests.portability.asking import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, Parameters, change, state

Start = Callable[..., Child]


@pytest.fixture
def armed(actuator: Start, watch: Watch, robot: Robot, fake: FakeAgent) -> Child:
    """An actuator that executes the chunks of a stand-in for the agent."""
    child = actuator(joint_trajectory=False)
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    return child


@pytest.fixture
def agent(children: Children, checkpoint: str, watch: Watch, robot: Robot) -> Child:
    """An agent that nobody has configured, before a robot and a sign of life of an actuator."""
    robot.play_actuator()
    watch.hear_agent()
    return children.node("agent", {"checkpoint": checkpoint, "autostart": False})


def ended(child: Child) -> int:
    """The exit status of a process that was asked to stop."""
    child.send(signal.SIGTERM)
    return child.wait()


def beats(watch: Watch, lifecycle: str) -> None:
    """Until a heartbeat from now on says so."""
    count = len(watch.beats)
    watch.until(lambda: any(beat["lifecycle"] == lifecycle for beat in watch.beats[count:]), f"a beat: {lifecycle}")


def test_the_agents_life_by_service(agent: Child, watch: Watch) -> None:
    beats(watch, "unconfigured")
    assert state(watch, "agent") == "unconfigured"
    assert change(watch, "agent", CONFIGURE)
    assert state(watch, "agent") == "inactive"
    beats(watch, "inactive")
    assert watch.chunks == [], "no chunk before it is active"
    assert change(watch, "agent", ACTIVATE)
    beats(watch, "active")
    watch.until(lambda: len(watch.chunks) >= 2, "chunks")
    assert {"session", "frame", "state", "lifecycle"} <= set(watch.beats[-1])
    assert watch.chunks[-1]["session"] == watch.beats[-1]["session"]
    watch.until(lambda: watch.provenance, "their provenance")
    epoch = watch.chunks[-1]["epoch"]
    assert watch.call("agent/reset")[0]
    watch.until(lambda: watch.chunks[-1]["epoch"] > epoch, "a chunk of the new epoch")
    assert change(watch, "agent", DEACTIVATE)
    beats(watch, "inactive")
    count = len(watch.chunks)
    beats(watch, "inactive")
    assert len(watch.chunks) == count, "no chunk after it was deactivated"
    assert change(watch, "agent", CLEANUP)
    assert state(watch, "agent") == "unconfigured"
    assert ended(agent) == 0


def test_the_agents_diagnostics_tell_what_becomes_of_it(agent: Child, watch: Watch) -> None:
    told = Diagnosed(watch)
    watch.until(lambda: any(name.startswith("agent: ") for name in told.newest), "the agent's diagnostics")
    assert change(watch, "agent", CONFIGURE)
    watch.until(
        lambda: any("inactive" in repr(status) for name, status in told.newest.items() if name.startswith("agent: ")),
        "diagnostics that say inactive",
    )
    assert all(status.hardware_id for status in told.newest.values())


def test_the_parameter_services(actuator: Start, watch: Watch) -> None:
    actuator(rate_hz=50.0)
    told = Parameters(watch, "actuator")
    assert {"rate_hz", "checkpoint", "max_chunk_age_ms", "use_sim_time"} <= told.names()
    assert told.get("rate_hz") == 50.0
    described = told.describe("rate_hz")
    assert described.read_only
    assert described.description
    [limits] = described.floating_point_range
    assert (limits.from_value, limits.to_value) == (10.0, 200.0)
    [(taken, reason)] = told.set(rate_hz=20.0)
    assert not taken
    assert "rate_hz" in reason
    taken, reason = told.set_together(use_sim_time=True, rate_hz=20.0)
    assert not taken
    assert "rate_hz" in reason
    assert told.get("rate_hz") == 50.0


def test_a_parameter_out_of_bounds_ends_the_node_with_status_2(actuator: Start) -> None:
    child = actuator(rate_hz=5.0)
    assert child.wait() == 2
    assert "rate_hz" in child.output
    assert "10" in child.output


def test_arming_is_refused_with_the_reason_until_everything_is_there(
    actuator: Start, watch: Watch, fake: FakeAgent
) -> None:
    actuator()
    refused = watch.call("actuator/arm")
    assert not refused[0]
    assert refused[1]
    watch.until(lambda: "joint_states" in watch.call("actuator/arm")[1], "the reason that joint_states are missing")
    assert watch.actions == []


def test_an_armed_actuator_streams_what_the_chunk_says(armed: Child, watch: Watch) -> None:
    count = len(watch.actions)
    watch.until(lambda: len(watch.actions) >= count + 50, "a stream of actions")
    heard = [each for each in watch.actions[count:] if each.label.state == "armed"]
    assert heard
    for each in heard:
        assert each.values.shape == (2,)
        assert np.all(np.isfinite(each.values))
        assert each.label.age_ns is not None
    assert [each.label.tick for each in heard] == sorted({each.label.tick for each in heard})


def test_stop_is_latched_and_disarm_ends_in_silence(armed: Child, watch: Watch) -> None:
    assert watch.call("actuator/stop")[0]
    watch.state_where(lambda told: told["state"] == "stopped", "stopped")
    assert not watch.call("actuator/arm")[0]
    assert watch.call("actuator/disarm")[0]
    watch.state_where(lambda told: told["state"] == "disarmed", "disarmed")
    watch.until(lambda: watch.actions[-1].label.state == "disarmed", "the last action")
    before = len(watch.sentinel())
    assert len(watch.sentinel()) == before, "nothing is published between two sentinels"


@pytest.mark.parametrize("still", [False, True])
def test_the_emergency_stop_is_latched_though_its_release_follows_at_once(
    armed: Child, watch: Watch, still: bool
) -> None:
    """Also where the process stands still for both words: the second one must not take the first one's place."""
    publisher = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    publisher.publish(Bool(data=False))
    watch.state_where(lambda told: told["emergency_stop"] is False, "the actuator hears the button")
    if still:
        armed.send(signal.SIGSTOP)
    for pressed in (True, False):
        publisher.publish(Bool(data=pressed))
    if still:
        armed.send(signal.SIGCONT)
    watch.state_where(lambda told: told["state"] == "stopped", "stopped by the topic")


def test_the_actuators_diagnostics(armed: Child, watch: Watch) -> None:
    told = Diagnosed(watch)
    watch.until(lambda: any(name.startswith("actuator: ") for name in told.newest), "the actuator's diagnostics")
    assert all(name.startswith("actuator: ") and status.hardware_id for name, status in told.newest.items())


def test_asked_to_stop_the_actuator_says_a_last_hold(armed: Child, watch: Watch) -> None:
    armed.send(signal.SIGTERM)
    watch.until(lambda: armed.process.poll() is not None, "the end of the process")
    assert armed.wait() == 0
    watch.until(lambda: watch.actions[-1].label.source == "hold", "a hold command as the last word")


def test_the_bridge_of_push_t(children: Children, watch: Watch) -> None:
    images, joints, status = list[Image](), list[JointState](), list[dict[str, Any]]()
    listen = watch.node.create_subscription
    listen(Image, "camera/top/image_raw", images.append, BEST_EFFORT)
    listen(JointState, "joint_states", joints.append, BEST_EFFORT)
    listen(String, "pusht/status", lambda message: status.append(json.loads(message.data)), RELIABLE)
    child = children(sys.executable, "-m", "auras_ros.sim.bridge.node", "--ros-args", "-p", "seed:=7")
    watch.until(lambda: images and joints and status, "camera, joint states and status")
    assert (images[-1].height, images[-1].width, images[-1].encoding) == (96, 96, "rgb8")
    assert len(images[-1].data) == 96 * 96 * 3
    assert list(joints[-1].name) == ["agent_x", "agent_y"]
    assert status[-1]["seed"] == 7
    done, text = watch.call("pusht/reset")
    assert done
    assert json.loads(text)["episode"] > status[0]["episode"]
    told = Parameters(watch, "pusht")
    [(taken, reason)] = told.set(seed=-1)
    assert not taken
    assert "seed" in reason
    assert told.set(seed=11) == [(True, "")]
    assert ended(child) == 0
