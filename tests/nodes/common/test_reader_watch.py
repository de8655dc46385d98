"""When readers are made again, with a clock and a graph that the test sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.nodes.common import reader_watch
from auras_ros.nodes.common.reader_watch import ReaderWatch, WatchedReader
from auras_ros.ros import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import JointState, String

CAMERA, ARM = b"camera".ljust(16, b"\0"), b"arm".ljust(16, b"\0")


class Graph:
    """A node, and who publishes on its topics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.number = 0  # of the newest message
        self.alive: dict[bytes, QoSProfile] = {}
        self.types: dict[bytes, str] = {}
        self.made: list[Any] = []
        self.destroyed: list[Any] = []
        self.logged: list[str] = []
        self.received: list[Any] = []
        self.dropped = 0
        self.parted = 0
        self.renewed_services = 0
        self.watch = ReaderWatch(self, self.logged.append, lambda: self.now_s)  # type: ignore[arg-type]
        monkeypatch.setattr(reader_watch, "dropped_bytes", lambda subscription: self.dropped)
        monkeypatch.setattr(reader_watch, "rediscover", self._rediscover)
        monkeypatch.setattr(reader_watch, "renew_services", self._renew_services)
        monkeypatch.setattr(reader_watch, "IDENTIFIES_PUBLISHERS", True)

    def _rediscover(self, node: Any) -> int:
        self.parted += 1
        return len(self.alive)

    def _renew_services(self, node: Any) -> list[str]:
        self.renewed_services += 1
        return []

    def get_publishers_info_by_topic(self, topic: str) -> list[Any]:
        return [
            SimpleNamespace(
                endpoint_gid=gid,
                node_name=gid.rstrip(b"\0").decode(),
                topic_type=self.types.get(gid, "sensor_msgs/msg/JointState"),
                qos_profile=profile,
            )
            for gid, profile in self.alive.items()
        ]

    def destroy_subscription(self, subscription: Any) -> None:
        self.destroyed.append(subscription)

    def subscribe(
        self, kind: Any = JointState, profile: QoSProfile | None = None, periodic: bool = True
    ) -> WatchedReader:
        def create(receive: Any) -> Any:
            made = SimpleNamespace(receive=receive, msg_type=kind, qos_profile=profile or QoSProfile(depth=1))
            self.made.append(made)
            return made

        def keep(payload: Any, info: Any) -> None:
            self.received.append(payload)

        return self.watch.add("joint_states" if periodic else "prompt", create, keep, periodic)

    def say(self, reader: WatchedReader, gid: bytes, payload: bytes = b"12345678", stamp_ns: int = 0) -> None:
        self.number += 1
        info = {"publisher_gid": gid, "source_timestamp": stamp_ns, "publication_sequence_number": self.number}
        reader.subscription.receive(payload, info)

    def talk(self, reader: WatchedReader, gid: bytes, period_s: float, count: int) -> None:
        for _ in range(count):
            self.now_s += period_s
            self.say(reader, gid)
            self.watch.look()

    def wait(self, duration_s: float) -> None:
        for _ in range(round(duration_s / 0.25)):
            self.now_s += 0.25
            self.watch.look()


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    return Graph(monkeypatch)


def test_a_publisher_that_is_alive_and_silent_for_a_second_gets_a_new_reader(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 20)
    graph.wait(1.0)
    assert reader.renewed_count == 0
    graph.wait(0.25)
    assert reader.renewed_count == 1
    assert graph.destroyed == graph.made[:1]
    assert graph.logged == ["joint_states: arm is alive and not heard: new reader, the 1st"]
    assert graph.watch.silent_topics() == ["joint_states"]


def test_a_slow_publisher_may_be_silent_for_20_of_its_periods(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.5, 20)
    graph.wait(10.0)
    assert reader.renewed_count == 0
    graph.wait(0.5)
    assert reader.renewed_count == 1


def test_while_it_stays_silent_the_pauses_grow(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 20)
    graph.wait(1.25 + 1 + 2 + 4 + 8)
    assert reader.renewed_count == 5
    graph.talk(reader, ARM, 0.02, 1)
    graph.wait(1.0)
    assert reader.renewed_count == 5
    graph.wait(0.25)
    assert reader.renewed_count == 6, "once it was heard, the pauses begin again"


def test_one_that_is_gone_or_does_not_match_is_not_waited_for(graph: Graph) -> None:
    wants = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    reader = graph.subscribe(profile=wants)
    graph.wait(5.0)
    weak = ReliabilityPolicy.BEST_EFFORT
    kept = DurabilityPolicy.TRANSIENT_LOCAL
    graph.alive = {
        b"a": QoSProfile(depth=1, reliability=weak, durability=kept),
        b"b": QoSProfile(depth=1, durability=DurabilityPolicy.VOLATILE),
        b"c": QoSProfile(depth=1, durability=kept),
    }
    graph.types = {b"c": "std_msgs/msg/String"}
    graph.wait(5.0)
    assert reader.renewed_count == 0


def test_of_two_publishers_the_silent_one_counts(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1), CAMERA: QoSProfile(depth=1)}
    graph.talk(reader, CAMERA, 0.02, 20)
    graph.talk(reader, ARM, 0.02, 100)
    assert reader.renewed_count == 1
    assert "camera is alive" in graph.logged[0]


def test_once_a_reader_was_deaf_rare_topics_and_services_get_new_ones(graph: Graph) -> None:
    rare = graph.subscribe(String, periodic=False)
    graph.say(rare, CAMERA, b"kept", stamp_ns=7)
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 20)
    graph.wait(1.25)
    assert (rare.renewed_count, graph.renewed_services) == (0, 0)
    graph.number += 60  # that the old reader did not hear
    graph.talk(reader, ARM, 0.02, 20)
    assert (rare.renewed_count, graph.renewed_services) == (1, 1)
    assert graph.watch.counts() == {"prompt": (1, 0), "joint_states": (1, 1)}
    graph.received.clear()
    graph.say(rare, CAMERA, b"kept", stamp_ns=7)
    graph.say(rare, CAMERA, b"new", stamp_ns=8)
    assert graph.received == [b"new"], "what the old reader had received is not delivered again"


@pytest.mark.parametrize(("missed", "deaf"), [(0, 0), (2, 0), (3, 1), (60, 1), (-200, 1)])
def test_a_publisher_that_goes_on_where_it_was_had_stood_still_itself(graph: Graph, missed: int, deaf: int) -> None:
    """Guards against new readers and services everywhere because one process was stopped for a second."""
    rare = graph.subscribe(String, periodic=False)
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 300)
    graph.wait(1.25)
    graph.number += missed
    graph.talk(reader, ARM, 0.02, 20)
    assert (reader.renewed_count, reader.deaf_count, rare.renewed_count) == (1, deaf, deaf)


def test_while_this_process_stood_still_nobody_was_silent(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 20)
    graph.now_s += 5.0
    graph.watch.look()
    assert reader.renewed_count == 0, "what was said meanwhile waits to be read"
    graph.wait(1.0)
    assert reader.renewed_count == 0
    graph.wait(0.25)
    assert reader.renewed_count == 1


def test_one_that_speaks_again_much_later_was_only_silent(graph: Graph) -> None:
    rare = graph.subscribe(String, periodic=False)
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 20)
    graph.wait(30.0)
    graph.talk(reader, ARM, 0.02, 20)
    assert (reader.deaf_count, rare.renewed_count) == (0, 0)


def test_only_a_reader_that_dropped_messages_parts_from_the_others(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.talk(reader, ARM, 0.02, 20)
    graph.dropped = 16  # two messages may be repetitions
    graph.wait(1.25)
    assert (reader.renewed_count, graph.parted) == (1, 0)
    graph.talk(reader, ARM, 0.02, 20)
    graph.wait(0.75)
    graph.dropped += 800
    graph.wait(0.5)
    assert (reader.renewed_count, graph.parted) == (2, 1)


def test_a_closed_reader_is_not_made_again_and_stays_counted(graph: Graph) -> None:
    reader = graph.subscribe()
    graph.alive = {ARM: QoSProfile(depth=1)}
    graph.wait(2.5)
    assert reader.renewed_count == 1
    reader.close()
    graph.wait(60.0)
    assert graph.watch.counts() == {"joint_states": (1, 0)}
    assert len(graph.made) == 2
