"""Noise on every topic that any node of the loop hears, found by the graph and not by a list: it lives, says so, and
the good messages after the noise are used."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.noise import NOISY, inputs
from auras_ros.ros import BACKEND, msg
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
@pytest.mark.skipif(BACKEND != "dds", reason="rclpy has no writer for raw bytes")
def test_the_loop_lives_through_noise_on_every_input(
    loop: Callable[[], SoakHarness], domain: int, tmp_path: Path
) -> None:
    harness, rng = loop(), random.Random(9)
    assert harness.until(lambda: {each.topic for each in inputs(harness.witness)} >= KNOWN, PATIENCE_S)
    log = tmp_path / "log.txt"
    for topic, ros_type, listeners in [(each.topic, each.ros_type, each.listeners) for each in inputs(harness.witness)]:
        before, said = harness.judge.kinds.total(), log.stat().st_size
        with outlets(harness, domain, topic, ros_type, len(listeners)) as (raw, foreign):
            for payload in noise(rng, serialized(ros_type)):
                raw.write([payload])
                harness.pause(PACE_S)
            for each in foreign:
                each()

            def said_so(raw: Any = raw, topic: str = topic, said: int = said) -> bool:
                raw.write([UNREADABLE])  # once more each time: a reader of depth 1 keeps the newest alone
                with log.open() as lines:
                    lines.seek(said)
                    return f"on {topic}: " in lines.read()

            assert harness.until(said_so, PATIENCE_S), f"it was said that {topic} had noise"
        if topic != "/action":  # the judge heard that noise too
            assert harness.judge.kinds.total() == before, (topic, harness.judge.violations)
        harness.witness.press(False)
        assert harness.until(lambda: not harness.witness.state["conflict"], PATIENCE_S), topic
        assert harness.drive(), f"driven after noise on {topic}"
        assert "process ended" not in harness.judge.kinds, (topic, harness.judge.violations)
    assert harness.witness.state["unreadable"] > 0
    sentinel_ns = harness.now_ns()

    def goes_on() -> bool:
        arm_after_a_stall(harness)
        return harness.judge.sent[-1].mono_ns > sentinel_ns and harness.steady()

    assert harness.until(goes_on, PATIENCE_S)


def serialized(ros_type: str) -> bytes:
    from auras_ros.ros.dds.messages import serialize_bytes

    return bytes(serialize_bytes(filled(msg.message_type(ros_type))))


@contextmanager
def outlets(
    harness: SoakHarness, domain: int, topic: str, ros_type: str, listeners: int
) -> Iterator[tuple[Any, list[Callable[[], None]]]]:
    """A raw writer matched with its listeners, and one that publishes another type on the same name."""
    from auras_ros.ros.dds.endpoint import Writer

    other = ros.Context()
    ros.init(args=[], context=other, domain_id=domain)
    kind = msg.Bool if ros_type != "std_msgs/msg/Bool" else msg.String
    publisher = harness.witness.create_publisher(kind, topic, NOISY)
    try:
        raw = Writer(other.participant, f"rt{topic}", ros_type, NOISY)
        assert harness.until(lambda: raw.matched_count() >= listeners, PATIENCE_S), topic
        yield raw, [lambda: publisher.publish(kind())] * 3
    finally:
        harness.witness.destroy_publisher(publisher)
        ros.try_shutdown(context=other)
