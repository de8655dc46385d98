"""A node's health on `/diagnostics`, by the conventions of diagnostic_updater.

Each task is a function that is called for every report; nothing here decides what is healthy, and nothing here acts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from auras_ros.nodes.common.qos import RELIABLE
from auras_ros.nodes.common.reader_watch import LOOK_PERIOD_S, ReaderWatch, Receive, WatchedReader
from auras_ros.output import printable
from auras_ros.ros import (
    Clock,
    ClockType,
    Node,
    PublisherEventCallbacks,
    QoSProfile,
    SubscriptionEventCallbacks,
    qos_policy_name_from_kind,
)
from auras_ros.ros.callbacks import failures_of
from auras_ros.ros.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from auras_ros.ros.newest import NewestMessage

TOPIC = "/diagnostics"
RECENT_S = 10.0  # a temporary event is a warning for this long


class Level(IntEnum):
    """diagnostic_msgs/DiagnosticStatus levels."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


_ON_WIRE = (DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR, DiagnosticStatus.STALE)


@dataclass(frozen=True)
class DiagnosticReport:
    """The result of one task: a level, one line for people, and values by key."""

    level: Level
    message: str
    values: Mapping[str, object] = field(default_factory=dict)


class Diagnostics:
    """One status for each task, named "<node>: <task>", published every period and at once by `changed`.

    The node's name includes its namespace, so that two robots can be told apart. Used in the executor's thread only.
    qos: watches the QoS of the node's topics, beginning with /diagnostics; its events are published at once.
    """

    def __init__(self, node: Node, hardware_id: str, period_s: float = 1.0) -> None:
        self._node, self._hardware_id = node, hardware_id
        self._name = node.get_fully_qualified_name().lstrip("/")
        self._failures = [failures_of(node)]
        self._tasks: dict[str, Callable[[], DiagnosticReport]] = {"callbacks": self._check_callbacks}
        self.qos = QosWatch(node, self.changed)
        self._publisher = self.qos.create_publisher(DiagnosticArray, TOPIC, RELIABLE)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(period_s, self.changed, clock=steady)
        node.create_timer(LOOK_PERIOD_S, self.qos.readers.look, clock=steady)

    def add(self, task: str, check: Callable[[], DiagnosticReport]) -> None:
        """Call `check` from now on. Raises ValueError for a task that exists already."""
        if task in self._tasks:
            raise ValueError(f"diagnostics: task {task!r} exists already")
        self._tasks[task] = check

    def add_all(self, checks: Mapping[str, Callable[[], DiagnosticReport]]) -> None:
        """The node's own tasks, and those of its topics' QoS and readers."""
        for task, check in {**checks, "qos": self.qos.check, "readers": self._check_readers}.items():
            self.add(task, check)

    def count_also(self, node: Node) -> None:
        """Also count failed callbacks of another node of this process, which has no diagnostics of its own."""
        self._failures.append(failures_of(node))

    def changed(self) -> None:
        """Publish now."""
        array = DiagnosticArray(status=[self._look(task, check) for task, check in self._tasks.items()])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    def _look(self, task: str, check: Callable[[], DiagnosticReport]) -> DiagnosticStatus:
        status = self._status(task, DiagnosticReport(Level.ERROR, "the check failed: see the log"))
        with self._failures[0].guarded(f"the diagnostic task '{task}'", self._node.get_logger().error):
            status = self._status(task, check())
        return status  # noqa: RET504  (the block swallows exceptions)

    def _check_callbacks(self) -> DiagnosticReport:
        failed = [each for each in self._failures if each.count]
        if not failed:
            return DiagnosticReport(Level.OK, "no callback has failed")
        last = "; ".join(each.last for each in failed)
        values = {"failed": sum(each.count for each in failed)}
        return DiagnosticReport(Level.WARN, f"callbacks failed, last: {last}", values)

    def _check_readers(self) -> DiagnosticReport:
        values: dict[str, object] = {}
        for topic, (renewed, deaf) in sorted(self.qos.readers.counts().items()):
            values[f"{topic} renewed"] = renewed
            values[f"{topic} deaf"] = deaf
        if silent := self.qos.readers.silent_topics():
            return DiagnosticReport(Level.WARN, f"publishers are alive and not heard: {', '.join(silent)}", values)
        return DiagnosticReport(Level.OK, "no publisher is alive and not heard", values)

    def _status(self, task: str, report: DiagnosticReport) -> DiagnosticStatus:
        return DiagnosticStatus(
            level=_ON_WIRE[report.level],
            name=f"{self._name}: {task}",
            message=printable(report.message),
            hardware_id=self._hardware_id,
            values=[KeyValue(key=printable(key), value=printable(str(value))) for key, value in report.values.items()],
        )


@dataclass
class _Count:
    """How often an event occurred, and when it did last (monotonic seconds)."""

    total: int
    last_s: float


class QosWatch:
    """QoS events of a node's topics as one diagnostic: which topic, which event, which policy, how often.

    Incompatible QoS remains a warning, because ROS does not report its end. Missed deadlines and lost liveliness are a
    warning for a while; lost messages are only counted, because best effort loses some. `news` is called (executor
    thread) for the first event of a kind, so that it is published at once.
    """

    def __init__(self, node: Node, news: Callable[[], None]) -> None:
        self.node, self._logger, self._news = node, node.get_logger(), news
        self.readers = ReaderWatch(node, self._logger.warning)
        self._counts: dict[tuple[str, str], _Count] = {}

    def create_publisher(self, kind: Any, topic: str, profile: QoSProfile) -> Any:
        """The node's, with its events watched."""
        return self.node.create_publisher(kind, topic, profile, event_callbacks=self.publisher(topic))

    def create_subscription(
        self,
        kind: Any,
        topic: str,
        callback: Callable[..., object],
        profile: QoSProfile,
        *,
        raw: bool = False,
        with_info: bool = False,
        newest: bool = False,
        periodic: bool = False,
    ) -> WatchedReader:
        """The node's, with its events watched, and made again when it may be deaf. with_info: `callback` also gets what
        the middleware says of the message. newest: of messages that wait, it gets only the newest. periodic: whether a
        living publisher that is silent is a fault."""
        take = NewestMessage(callback)

        def create(receive: Receive) -> Any:
            events = self.subscription(topic)
            made = self.node.create_subscription(kind, topic, receive, profile, raw=raw, event_callbacks=events)
            take.subscription = made if newest else None
            return made

        receive = callback if with_info else lambda message, _: take(message)
        return self.readers.add(topic, create, receive, periodic)

    def publisher(self, topic: str) -> PublisherEventCallbacks:
        return PublisherEventCallbacks(
            deadline=lambda info: self._note(topic, "deadline missed", info.total_count),
            liveliness=lambda info: self._note(topic, "liveliness lost", info.total_count),
            incompatible_qos=lambda info: self._incompatible(topic, info),
        )

    def subscription(
        self, topic: str, call: Callable[[Callable[[], None]], None] = lambda report: report()
    ) -> SubscriptionEventCallbacks:
        """call: calls what it is given, at once or later in the executor's thread."""
        return SubscriptionEventCallbacks(
            deadline=lambda info: call(lambda: self._note(topic, "deadline missed", info.total_count)),
            liveliness=lambda info: call(lambda: self._liveliness(topic, info.not_alive_count_change)),
            message_lost=lambda info: call(lambda: self._note(topic, "messages lost", info.total_count)),
            incompatible_qos=lambda info: call(lambda: self._incompatible(topic, info)),
        )

    def check(self) -> DiagnosticReport:
        now_s = time.monotonic()
        values = {f"{topic} {what}": count.total for (topic, what), count in sorted(self._counts.items())}
        wrong = [
            f"{topic}: {what}"
            for (topic, what), count in sorted(self._counts.items())
            if what.startswith("incompatible") or (what != "messages lost" and now_s - count.last_s < RECENT_S)
        ]
        if wrong:
            return DiagnosticReport(Level.WARN, "; ".join(wrong), values)
        return DiagnosticReport(Level.OK, "no QoS problem", values)

    def _incompatible(self, topic: str, info: object) -> None:
        # rclpy's C extension has its own enumeration of the kinds, whose `name` is not ROS's name
        policy = qos_policy_name_from_kind(info.last_policy_kind)  # type: ignore[attr-defined]
        total = info.total_count  # type: ignore[attr-defined]
        self._logger.warning(f"{topic}: incompatible QoS of another node, policy {policy}: no messages are exchanged")
        self._note(topic, f"incompatible {policy}", total)

    def _liveliness(self, topic: str, lost: int) -> None:
        if lost > 0:
            known = self._counts.get((topic, "liveliness lost"))
            self._note(topic, "liveliness lost", lost + (known.total if known else 0))

    def _note(self, topic: str, what: str, total: int) -> None:
        known = (topic, what) in self._counts
        self._counts[topic, what] = _Count(total, time.monotonic())
        if not known:
            self._news()
