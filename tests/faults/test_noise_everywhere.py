"""Noise on every topic that any node of the loop hears, found by the graph and not by a list: it lives, says so, and
the good messages after the noise are used."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.noise import inputs
from auras_ros.live.soak.own_layer import OwnLayer
from auras_ros.ros.dds.messages import message_type, serialize_bytes
from tests.faults.conftest import arm_after_a_stall
from tests.ros.test_fuzz import HEADER, filled, noise

KNOWN = {
    "/action", "/actuator/state", "/agent/chunk", "/agent/heartbeat", "/camera/top/image_raw", "/emergency_stop",
    "/joint_states", "/prompt", "/robot_description",
}  # fmt: skip
UNREADABLE = HEADER + b"\xff" * 64  # as any of the types
PACE_S = 0.002
PATIENCE_S = 20.0


@pytest.mark.slow
def test_the_loop_lives_through_noise_on_every_input(
    loop: Callable[[], SoakHarness], domain: int, tmp_path: Path
) -> None:
    harness, rng = loop(), random.Random(9)
    assert harness.until(lambda: {each.topic for each in inputs(harness.witness)} >= KNOWN, PATIENCE_S)
    log = tmp_path / "log.txt"
    for at in inputs(harness.witness):
        before, said = harness.judge.kinds.total(), log.stat().st_size
        with OwnLayer() as writer:  # rclpy's own writers send nothing that is longer than the type, and no other type
            foreign = "std_msgs/msg/Bool" if at.ros_type != "std_msgs/msg/Bool" else "std_msgs/msg/String"
            writer.open(f"rt{at.topic}", foreign, listeners=0)
            writer.write(serialized(foreign), 3)
            writer.open(f"rt{at.topic}", at.ros_type, len(at.listeners))
            for payload in noise(rng, serialized(at.ros_type)):
                writer.write(payload, 1)
                harness.pause(PACE_S)

            def said_so(writer: OwnLayer = writer, topic: str = at.topic, said: int = said) -> bool:
                writer.write(UNREADABLE, 1)  # once more each time: a reader of depth 1 keeps the newest alone
                with log.open() as lines:
                    lines.seek(said)
                    return f"on {topic}: " in lines.read()

            assert harness.until(said_so, PATIENCE_S), f"it was said that {at.topic} had noise"
        if at.topic != "/action":  # the judge heard that noise too
            assert harness.judge.kinds.total() == before, (at.topic, harness.judge.violations)
        harness.witness.press(False)
        assert harness.until(lambda: not harness.witness.state["conflict"], PATIENCE_S), at.topic
        assert harness.drive(), f"driven after noise on {at.topic}"
        assert "process ended" not in harness.judge.kinds, (at.topic, harness.judge.violations)
    assert harness.witness.state["unreadable"] > 0
    sentinel_ns = harness.now_ns()

    def goes_on() -> bool:
        arm_after_a_stall(harness)
        return harness.judge.sent[-1].mono_ns > sentinel_ns and harness.steady()

    assert harness.until(goes_on, PATIENCE_S)


def serialized(ros_type: str) -> bytes:
    """A message of our own layer's, which the process that writes uses too."""
    return bytes(serialize_bytes(filled(message_type(ros_type))))
