"""/diagnostics: the conventions of diagnostic_updater, QoS events by topic and policy, and what the agent reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from auras_ros.nodes.common.diagnostics import DiagnosticReport, Diagnostics, Level
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.msg import DiagnosticArray, DiagnosticStatus, String
from tests.nodes.agent_child import running
from tests.nodes.wire import BEST_EFFORT, PATIENCE_S, RELIABLE

SAID_WITHIN_S = 1.0


@dataclass
class Pair:
    """A node that reports, and one that listens, spun together."""

    node: Node
    other: Node
    executor: SingleThreadedExecutor
    heard: list[Any]

    def until(self, condition: Callable[[], Any]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s
            self.executor.spin_once(timeout_sec=0.02)

    def newest(self) -> dict[str, Any]:
        return {status.name: status for status in self.heard[-1].status}


@pytest.fixture
def pair(domain: int) -> Iterator[Pair]:
    init(args=[])
    executor = SingleThreadedExecutor()
    nodes = Node("left_arm", namespace="/robot"), Node("ear")
    heard: list[Any] = []
    nodes[1].create_subscription(DiagnosticArray, "/diagnostics", heard.append, RELIABLE)
    for node in nodes:
        executor.add_node(node)
    yield Pair(*nodes, executor, heard)
    executor.shutdown()
    for node in nodes:
        node.destroy_node()
    try_shutdown()


def test_each_task_is_a_status_named_after_its_node(pair: Pair) -> None:
    diagnostics = Diagnostics(pair.node, "arm 7", period_s=0.05)
    reports = {level: DiagnosticReport(level, f"it is {level.name}", {"count": 3, "text": "x"}) for level in Level}
    for level, report in reports.items():
        diagnostics.add(level.name, lambda report=report: report)
    pair.until(lambda: pair.heard)
    statuses = pair.newest()
    expected = (DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR, DiagnosticStatus.STALE)
    for level, on_wire in zip(Level, expected, strict=True):
        status = statuses[f"robot/left_arm: {level.name}"]
        assert (status.level, status.message, status.hardware_id) == (on_wire, f"it is {level.name}", "arm 7")
        assert [(pair.key, pair.value) for pair in status.values] == [("count", "3"), ("text", "x")]
    assert pair.heard[-1].header.stamp.sec > 0
    with pytest.raises(ValueError, match="'OK' exists already"):
        diagnostics.add("OK", lambda: reports[Level.OK])


class Hostile:
    """A value that cannot be shown."""

    def __str__(self) -> str:
        raise RecursionError


def test_what_cannot_be_told_keeps_no_other_task_from_being_told(pair: Pair) -> None:
    """Guards against texts from outside that end what passes them on: lone surrogates, values without a text."""
    diagnostics = Diagnostics(pair.node, "", period_s=0.05)
    diagnostics.add("odd", lambda: DiagnosticReport(Level.OK, "a \ud800", {"k\ud800": "v\ud800\0"}))
    diagnostics.add("hostile", lambda: DiagnosticReport(Level.OK, "", {"value": Hostile()}))
    diagnostics.add("broken", [].pop)
    pair.until(lambda: len(pair.heard) >= 3)
    statuses = {name.partition(": ")[2]: status for name, status in pair.newest().items()}
    assert statuses["odd"].message == "a \\ud800"
    assert (statuses["odd"].values[0].key, statuses["odd"].values[0].value) == ("k\\ud800", "v\\ud800\\0")
    for task in ("hostile", "broken"):
        assert (statuses[task].level, statuses[task].message) == (
            DiagnosticStatus.ERROR,
            "the check failed: see the log",
        )
    assert statuses["callbacks"].level == DiagnosticStatus.WARN
    assert int(statuses["callbacks"].values[0].value) >= 4


def test_it_comes_by_itself_and_at_once_when_something_changed(pair: Pair) -> None:
    state = ["before"]
    Diagnostics(pair.other, "", period_s=0.05).add("beat", lambda: DiagnosticReport(Level.OK, ""))
    pair.until(lambda: len(pair.heard) >= 3)  # discovery is over
    rare = Diagnostics(pair.node, "", period_s=3600.0)
    rare.add("state", lambda: DiagnosticReport(Level.OK, state[0]))
    name = "robot/left_arm: state"

    def said(message: str) -> bool:
        rare.changed()
        return any(status.message == message for array in pair.heard for status in array.status if status.name == name)

    pair.until(lambda: said("before"))
    state[0] = "after"
    pair.until(lambda: said("after"))


@pytest.mark.parametrize("side", ["publisher", "subscription"])
def test_incompatible_qos_is_named_by_topic_and_policy(pair: Pair, side: str) -> None:
    diagnostics = Diagnostics(pair.node, "", period_s=3600.0)  # what is heard was said because of the event
    watch = diagnostics.qos
    diagnostics.add("qos", watch.check)
    pair.until(lambda: pair.node.count_subscribers("/diagnostics") == 1)
    diagnostics.changed()
    pair.until(lambda: pair.heard)
    assert pair.newest()["robot/left_arm: qos"].level == DiagnosticStatus.OK
    if side == "publisher":
        pair.node.create_publisher(String, "camera", BEST_EFFORT, event_callbacks=watch.publisher("camera"))
        pair.other.create_subscription(String, "/robot/camera", lambda _: None, RELIABLE)
    else:
        events = watch.subscription("camera")
        pair.node.create_subscription(String, "camera", lambda _: None, RELIABLE, event_callbacks=events)
        pair.other.create_publisher(String, "/robot/camera", BEST_EFFORT)
    began_s = time.monotonic()
    pair.until(lambda: len(pair.heard) > 1)
    status = pair.newest()["robot/left_arm: qos"]
    assert (status.level, status.message) == (DiagnosticStatus.WARN, "camera: incompatible RELIABILITY")
    assert [(pair.key, pair.value) for pair in status.values] == [("camera incompatible RELIABILITY", "1")]
    assert time.monotonic() - began_s < SAID_WITHIN_S + 1.0  # and room for discovery on a busy machine


def test_the_agent_says_how_it_is(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path) as agent:
        agent.chunk("chunks")
        values = agent.diagnosed("observation", 0, "observations are received")
        assert int(values["top received"]) > 0
        assert float(values["top age_ms"]) < 1000
        agent.watch.until(lambda: "p99_ms" in agent.diagnosed("frames", 0, ""), "durations of frames")
        values = agent.diagnosed("frames", 0, "frames are running")
        assert float(values["rate_hz"]) > 0
        assert float(values["p99_ms"]) >= float(values["p50_ms"]) > 0
        assert agent.diagnosed("plan", 0, "first plan")["plan"] == "quick"
        agent.diagnosed("actuator", 0, "alive")
        agent.diagnosed("qos", 0, "no QoS problem")
        agent.robot.images = False
        agent.diagnosed("observation", 2, "top: stale")
        agent.robot.images = True
        agent.diagnosed("observation", 0, "observations are received")
        topic, agent.robot.actuator_topic = agent.robot.actuator_topic, None
        agent.diagnosed("actuator", 2, "silent")
        agent.robot.actuator_topic = topic
        agent.diagnosed("actuator", 0, "alive")
        picky = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        agent.watch.node.create_subscription(String, "agent/heartbeat", lambda _: None, picky)
        agent.diagnosed("qos", 1, "heartbeat: incompatible RELIABILITY")
