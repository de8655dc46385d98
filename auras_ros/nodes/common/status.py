"""The status of a node that loads something for seconds, as heartbeats, diagnostics and the log report it. It decides
nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level


class WatchedWork(Protocol):
    """What an active node runs in threads of its own."""

    def broken(self) -> bool:
        """Whether one of the threads has ended by itself."""
        ...

    def under_way(self) -> dict[str, int]:
        """What runs now -> when it began, monotonic ns."""
        ...


class LoadedNodeStatus:
    """session: from one configure to the next. checkpoint: digest of what is loaded, empty while nothing is. late: what
    has been running for too long; written by the heartbeat's thread. The rest is written by the executor's thread (and
    by the heartbeat's when it ends), and read by any.

    RUNS: what is watched, in one word. SO: what follows if it is late.
    """

    RUNS: ClassVar[str]
    SO: ClassVar[str] = ""

    def __init__(self, session: str) -> None:
        self.session, self.lifecycle, self.late = session, "unconfigured", ""
        self.checkpoint = ""
        self.doing, self.wrong = "", False

    def set_state(self, lifecycle: str, doing: str = "", wrong: bool = False) -> None:
        self.lifecycle, self.doing, self.wrong = lifecycle, doing, wrong

    @property
    def work(self) -> WatchedWork | None:
        """While active, what is watched."""
        raise NotImplementedError

    def frame(self) -> int:
        """A count that grows while it works, from one configure to the next."""
        raise NotImplementedError

    def tasks(self) -> dict[str, Callable[[], DiagnosticReport]]:
        """The node's own diagnostics."""
        raise NotImplementedError

    def text(self) -> str:
        """For people: what the node does, or why it does nothing."""
        if self.doing:
            return self.doing if self.wrong else f"{self.lifecycle}: {self.doing}"
        return self.late or (self.lifecycle if self.lifecycle != "active" else self.working_text())

    def working_text(self) -> str:
        """The same, while active."""
        raise NotImplementedError

    @property
    def pause(self) -> str:
        """Why the actuator should hold although this node works; empty if it need not. Any thread."""
        return ""

    def nothing(self) -> DiagnosticReport:
        return DiagnosticReport(Level.OK, f"nothing while {self.lifecycle}")
