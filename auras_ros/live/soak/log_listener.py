"""What nodes say of themselves beside their work: lines of their logs, and the newest status of each diagnostic.

It listens and remembers; what the words mean is for those who ask.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.live.chunk_times import values_of
from auras_ros.live.soak.topics import EVERY
from auras_ros.ros import Node
from auras_ros.ros.msg import DiagnosticArray, Log

KEPT_LINES = 1000


@dataclass(frozen=True)
class LogLine:
    """One line of a log: when it was heard (monotonic ns), whose it is, what it says."""

    heard_ns: int
    node: str
    text: str


@dataclass(frozen=True)
class DiagnosticEntry:
    """One diagnostic: when it was heard (monotonic ns), what it says, and its values by key."""

    heard_ns: int
    message: str
    values: dict[str, str]


class LogListener:
    """Subscribes on `node`. Times are those of hearing: a late listener makes them later, never earlier."""

    def __init__(self, node: Node) -> None:
        self._clock = MonotonicClock()
        self._lines: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._statuses: dict[str, DiagnosticEntry] = {}
        node.create_subscription(Log, "/rosout", self._on_line, EVERY)
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, EVERY)

    def line_ns(self, node: str, words: str, since_ns: int) -> int | None:
        """When that node first said these words after a time; None where it has not yet."""
        for each in self._lines:
            if each.heard_ns > since_ns and each.node == node and words in each.text:
                return each.heard_ns
        return None

    def status(self, task: str) -> DiagnosticEntry:
        """The newest word on a task ("agent: frames"); empty where there is none."""
        return self._statuses.get(task, DiagnosticEntry(0, "", {}))

    def count(self, task: str, key: str) -> int:
        """A number among a task's values; 0 where it is not there."""
        text = self.status(task).values.get(key, "0")
        return int(text) if text.isdecimal() else 0

    def _on_line(self, message: Any) -> None:
        self._lines.append(LogLine(self._clock.now_ns(), message.name, message.msg))

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        now_ns = self._clock.now_ns()
        for status in message.status:
            self._statuses[status.name] = DiagnosticEntry(now_ns, status.message, values_of(status))
