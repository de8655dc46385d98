"""The agent's signs of life, and the end of its process where a frame does not end.

The heart beats in every state. While a frame is late it is silent, after a beat that says so; a frame that hangs stops
it, and then the process ends; where the frame keeps the interpreter, so that nothing here runs any more, the guard
outside ends it. Nothing here touches the frames.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from auras_ros.nodes.agent.hang_detector import HangDetector, Heart
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.status import AgentStatus
from auras_ros.nodes.agent.watchdog import Watchdog
from auras_ros.ros.callbacks import CallbackFailures

LAST_RESORT_S = 3.0  # a process whose frame hangs is ended by force after this
GUARD_S = 5.0  # and one of which no thread runs after this: no frame that gives way is taken for it


class Pulse:
    """`expect` and `relax` say when frames may run; executor thread. `hung`: a frame was found that does not end."""

    def __init__(self, status: AgentStatus, voice: AgentPublishers, logger: Any) -> None:
        self._status, self._voice, self._logger = status, voice, logger
        self._heart = Heart(self._beat_in_time, self._why_stop, self._ended)
        self._guard, self._guarded = Watchdog(GUARD_S, self._on_no_guard), False
        self._hangs, self._limit_ns = HangDetector(), 0
        self._late, self._failures = "", CallbackFailures()
        self.hung = False

    def start(self) -> None:
        """Beat from now on."""
        self._guard.start()
        self._heart.start()

    def alive(self) -> bool:
        """Whether the heart beats: it stops with the frames."""
        return self._heart.alive()

    def expect(self, limit_ns: int) -> None:
        """Frames are about to begin, none of which may take longer."""
        self._limit_ns, self._guarded = limit_ns, True
        self._guard.beat(True)  # the first frame may leave the heart no turn to say it

    def relax(self) -> None:
        """No frame is under way. To let go of a model, or to load one, may keep the interpreter for long."""
        self._guarded = False

    def unguard(self) -> None:
        """The process is about to end in good order."""
        self._guard.close()

    def stop(self) -> None:
        """Beat no longer by itself."""
        self._heart.stop()

    def beat(self) -> None:
        """One heartbeat, from any thread."""
        status = self._status
        self._guard.beat(self._guarded)
        self._voice.beat(status.session, status.frame(), status.text(), status.lifecycle)

    # -- the heart's thread -------------------------------------------------------------------------------

    def _why_stop(self, now_ns: int) -> str:
        if self._failures.only():
            return f"no heartbeat can be published: {self._failures.last}"
        frames = self._status.frames
        if frames is None:
            self._say_late("")
            return ""
        if frames.broken():
            return "a worker ended by itself: the traceback before this says which, and why"
        late = self._hangs.look(frames.under_way(), self._limit_ns, now_ns)
        if late is not None and late.hung:
            return f"hung: {late.worker} does not end"
        self._say_late(late.worker if late is not None else "")
        return ""

    def _say_late(self, worker: str) -> None:
        """Once when a frame is late, with a beat, the last one until it ends; and once when it has ended."""
        if worker == self._late:
            return
        self._late = worker
        limit_s = self._limit_ns / 1e9
        if not worker:
            self._status.late = ""
            self._logger.info("the late frame has ended: the same session goes on")
            return
        self._status.late = f"late: {worker} has been under way for more than {limit_s:.1f} s"
        self._logger.error(f"{self._status.late}; no heartbeat until it ends, on which the actuator holds")
        self.beat()

    def _beat_in_time(self) -> None:
        if self._late:
            self._guard.beat(self._guarded)
            return
        with self._failures.guarded("a heartbeat", self._logger.error):
            self.beat()

    def _ended(self, reason: str) -> None:
        """The last beat says why; then silence, on which the actuator holds, and the process ends."""
        self._logger.error(reason)
        self.hung = reason.startswith("hung")
        status = self._status
        status.late = ""
        status.now(status.lifecycle, reason, True)  # no other state: the actuator must hold, not disarm
        self.beat()
        if self.hung:  # what hangs may hold what an orderly end waits for
            last_resort = threading.Timer(LAST_RESORT_S, os._exit, (1,))
            last_resort.daemon = True
            last_resort.start()

    def _on_no_guard(self, why: str) -> None:
        self._logger.error(f"no guard: a frame that keeps the interpreter will not be ended: {why}")
