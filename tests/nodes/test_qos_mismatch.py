"""Somebody whose QoS does not fit: said on /diagnostics by topic and policy, within a second of his coming.

Every topic of agent and actuator that can be offended at all, from its own side: what they publish, and what they
hear. Timed from when the offender has been created to the stamp of the diagnostic that names it, both on this host's
clock, so that a late listener changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from auras_ros.ros import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import Bool, DiagnosticArray, Float64MultiArray, JointTrajectory, String
from tests.nodes.stand_ins import Robot
from tests.nodes.wire import RELIABLE, Children, Watch, own_domain

WITHIN_S = 1.0
BUSY_S = 1.0  # room for a machine that has other work
NS = 1_000_000_000


def qos(reliability: str, durability: str) -> QoSProfile:
    return QoSProfile(depth=1, reliability=ReliabilityPolicy[reliability], durability=DurabilityPolicy[durability])


# What is wrong with the offender: the rest of his QoS fits.
WEAK = {"RELIABILITY": qos("BEST_EFFORT", "TRANSIENT_LOCAL"), "DURABILITY": qos("RELIABLE", "VOLATILE")}
PICKY = {"RELIABILITY": qos("RELIABLE", "VOLATILE"), "DURABILITY": qos("BEST_EFFORT", "TRANSIENT_LOCAL")}


@dataclass(frozen=True)
class Case:
    """`topic` as its node calls it and as it is on the wire; `offers`: the node publishes it."""

    node: str
    topic: str
    kind: Any
    policy: str
    offers: bool = False

    @property
    def wire(self) -> str:
        return self.topic.replace("~", self.node)

    def __str__(self) -> str:
        return f"{self.wire}-{self.policy}-{'publisher' if self.offers else 'subscription'}"


NODES = ("agent", "actuator")
CASES = [
    Case("agent", "~/heartbeat", String, "RELIABILITY", offers=True),  # best effort: only asking for more offends it
    Case("agent", "~/heartbeat", String, "DURABILITY", offers=True),
    Case("agent", "~/chunk", Float64MultiArray, "DURABILITY", offers=True),  # reliable: nobody can ask for more
    Case("agent", "provenance", DiagnosticArray, "DURABILITY", offers=True),
    *(Case(node, "/diagnostics", DiagnosticArray, "DURABILITY", offers=True) for node in NODES),
    *(Case("agent", topic, String, policy) for topic in ("prompt", "actuator/state") for policy in WEAK),
    Case("actuator", "action", Float64MultiArray, "DURABILITY", offers=True),
    Case("actuator", "joint_trajectory", JointTrajectory, "DURABILITY", offers=True),
    Case("actuator", "agent/chunk", Float64MultiArray, "RELIABILITY"),  # volatile: every durability will do
    Case("actuator", "emergency_stop", Bool, "RELIABILITY"),  # one of its readers takes volatile publishers
    *(Case("actuator", "robot_description", String, policy) for policy in WEAK),
]


class Told:
    """What the tasks `qos` of both nodes have said: when by their own clock, ns, and how often each offence came."""

    def __init__(self, watch: Watch) -> None:
        self.heard: list[tuple[int, str, str, dict[str, int]]] = []
        watch.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_array, RELIABLE)

    def _on_array(self, array: DiagnosticArray) -> None:
        stamp_ns = array.header.stamp.sec * NS + array.header.stamp.nanosec
        for status in array.status:
            node, _, task = status.name.partition(": ")
            if task == "qos":
                counts = {pair.key: int(pair.value) for pair in status.values}
                self.heard.append((stamp_ns, node, status.message, counts))

    def count(self, node: str, offence: str) -> int:
        return max((counts.get(offence, 0) for _, who, _, counts in self.heard if who == node), default=0)

    def said(self, node: str, offence: str, count: int) -> tuple[int, str] | None:
        """(stamp, message) of the first that counted so many."""
        found = [(stamp, text) for stamp, who, text, counts in self.heard
                 if who == node and counts.get(offence, 0) >= count]  # fmt: skip
        return min(found, default=None)


@pytest.fixture(scope="module")
def both(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Watch, Told]]:
    """Agent and actuator, each in its process, with a robot before them; they have found the test."""
    with own_domain():
        watch, children = Watch(), Children(tmp_path_factory.mktemp("qos"))
        robot = Robot(watch.node)
        try:
            told = Told(watch)
            watch.hear_agent()
            children.node("actuator", {"checkpoint": checkpoint, "joint_trajectory": True, "agent_timeout_ms": 1000.0})
            children.node("agent", {"checkpoint": checkpoint, "sync_tolerance_ms": 100.0})
            watch.until(lambda: watch.states and watch.beats, "both processes")
            watch.until(lambda: watch.chunks, "the agent at work")
            watch.until(
                lambda: {who for _, who, _, _ in told.heard} == {"agent", "actuator"}, "both nodes' diagnostics"
            )
            yield watch, told
        finally:
            children.reap()
            robot.close()
            watch.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_named_within_a_second(both: tuple[Watch, Told], case: Case) -> None:
    watch, told = both
    offence = f"{case.topic} incompatible {case.policy}"
    offended = NODES if case.topic == "/diagnostics" else (case.node,)  # both publish it
    before = {node: told.count(node, offence) for node in offended}
    known = before[case.node]
    asked_ns = time.time_ns()
    if case.offers:
        made = watch.node.create_subscription(case.kind, case.wire, lambda _: None, PICKY[case.policy])
    else:
        made = watch.node.create_publisher(case.kind, case.wire, WEAK[case.policy])
    began_ns = time.time_ns()
    try:
        for node in offended:  # the other's word too: the next case must not take it for its own offender's
            watch.until(lambda node=node: told.said(node, offence, before[node] + 1), f"{node}: {offence}")
    finally:
        destroy = watch.node.destroy_subscription if case.offers else watch.node.destroy_publisher
        destroy(made)
    said = told.said(case.node, offence, known + 1)
    assert said is not None
    stamp_ns, text = said
    assert f"{case.topic}: incompatible {case.policy}" in text
    assert asked_ns <= stamp_ns <= began_ns + (WITHIN_S + BUSY_S) * NS


def test_whoever_speaks_another_type_is_seen_in_the_graph_and_passes_for_nobody(both: tuple[Watch, Told]) -> None:
    """DDS tells no endpoint of a type that differs: only the graph shows both. A button that says something else than
    true and false must not count as one."""
    watch, _ = both
    topic = watch.node.create_publisher(String, "emergency_stop", WEAK["DURABILITY"])

    def types() -> dict[str, list[str]]:
        return dict(watch.node.get_topic_names_and_types())

    try:
        watch.until(lambda: types()["/emergency_stop"] == ["std_msgs/msg/Bool", "std_msgs/msg/String"], "both types")
        topic.publish(String(data="true"))
        count = watch.states[-1]["tick"]
        watch.state_where(lambda state: state["tick"] > count + 30, "thirty ticks")
        assert topic.get_subscription_count() == 0
        assert watch.states[-1]["emergency_stop"] is None
    finally:
        watch.node.destroy_publisher(topic)
