"""A node's heartbeats, and the end of its process if what it runs hangs.

Heartbeats are sent in every lifecycle state, from a thread of their own. When a frame (or whatever the node runs in
threads of its own) is late, one heartbeat reports it, and no more are sent until it ends; then the same session goes
on. If it hangs, the heartbeat's thread ends, and then the process, to be started again. If it holds the interpreter
lock, so that no thread here can run, a guard process ends this one. Nothing here touches what runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import json_message
from auras_ros.nodes.common.qos import BEST_EFFORT
from auras_ros.nodes.common.status import LoadedNodeStatus
from auras_ros.nodes.common.watchdog import Watchdog
from auras_ros.nodes.common.watchdog_process import OwnTime
from auras_ros.ros.callbacks import CallbackFailures
from auras_ros.ros.msg import String

BEAT_NS = 20_000_000
LEAST_LIMIT_NS = 1_000_000_000
LATE_BEATS = 2
WARM_UPS = 5  # a frame may take this many times its duration at warm-up, if that is more
HUNG_NS = 10_000_000_000  # CPU time of the process that a late frame has before it counts as hung
HUNG_LIMITS = 10  # or this many limits, if that is more
AT_LAST = 6  # upper bound in wall time, as a multiple of that, however busy the machine
LAST_RESORT_S = 3.0  # a process with a hung frame is ended by force after this time
GUARD_S = 5.0  # a process in which no Python thread runs is ended after this time


def frame_limit_ns(warm_up_ns: int) -> int:
    """How long a frame may take before it counts as late: just under a second, or longer for a slow policy."""
    return max(LEAST_LIMIT_NS - 5 * BEAT_NS, WARM_UPS * warm_up_ns)


@dataclass(frozen=True)
class Late:
    """A frame that has been running for too long. hung: it will not end."""

    worker: str
    hung: bool


class HangDetector:
    """Counts how long the same frame has been running, in heartbeats: if the whole process or the machine was stopped,
    the frame is not late. A late heartbeat counts as two, however late it is: the actuator reacts to such a gap, as it
    takes a missing heartbeat for a lost agent.

    Whether a late frame is hung is decided by the process's own time only (`watchdog_process.OwnTime`): on a busy
    machine a frame may wait for a processor, and is not hung.
    """

    def __init__(self, own: Callable[[], OwnTime] = lambda: OwnTime(os.getpid())) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # worker -> (when its frame began, how long it was seen since)
        self._last_ns: int | None = None
        self._start_own = own
        self._late: tuple[str, int] | None = None  # worker, when its frame began
        self._own, self._own_ns = own(), 0  # since it was late

    def look(self, under_way: dict[str, int], limit_ns: int, now_ns: int) -> Late | None:
        """The worker whose frame has been running for too long, if there is one."""
        passed_ns = 0 if self._last_ns is None else min(now_ns - self._last_ns, LATE_BEATS * BEAT_NS)
        self._last_ns = now_ns
        seen: dict[str, tuple[int, int]] = {}
        for worker, began_ns in under_way.items():
            before = self._seen.get(worker)
            seen[worker] = began_ns, before[1] + passed_ns if before and before[0] == began_ns else 0
        self._seen = seen
        worker = max(seen, key=lambda each: seen[each][1], default="")
        if not worker or seen[worker][1] <= limit_ns:
            self._late = None
            return None
        return Late(worker, self._hung(worker, limit_ns, passed_ns))

    def _hung(self, worker: str, limit_ns: int, passed_ns: int) -> bool:
        began_ns, seen_ns = self._seen[worker]
        if self._late != (worker, began_ns):
            self._late, self._own, self._own_ns = (worker, began_ns), self._start_own(), 0
        self._own_ns += self._own.of(passed_ns)
        enough_ns = max(HUNG_NS, HUNG_LIMITS * limit_ns)
        return self._own_ns > enough_ns or seen_ns > AT_LAST * enough_ns


class Heartbeat:
    """`frames_begin` and `frames_ended` say when frames may run; executor thread. `hung`: a hung frame was found."""

    def __init__(self, status: LoadedNodeStatus, qos: QosWatch) -> None:
        self._status, self._logger = status, qos.node.get_logger()
        self._topic = qos.create_publisher(String, "~/heartbeat", BEST_EFFORT)
        self._monotonic = MonotonicClock()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)
        self._watchdog, self._watched = Watchdog(GUARD_S, self._on_no_guard), False
        self._hangs, self._limit_ns = HangDetector(), 0
        self._late, self._failures = "", CallbackFailures()
        self.hung = False

    def start(self) -> None:
        """Send heartbeats from now on."""
        self._watchdog.start()
        self._running.set()
        self._thread.start()

    def alive(self) -> bool:
        """Whether the heartbeat's thread is alive; it ends when a frame hangs or a worker fails."""
        return self._thread.is_alive()

    def frames_begin(self, limit_ns: int) -> None:
        """Called before frames begin. limit_ns: how long each may take."""
        self._limit_ns, self._watched = limit_ns, True
        self._watchdog.beat(True)  # now, because the first one may keep the heartbeat's thread from running

    def frames_ended(self) -> None:
        """Called when no frame runs. Releasing or loading a model may hold the interpreter lock for long."""
        self._watched = False

    def release_watchdog(self) -> None:
        """Called before an orderly end of the process."""
        self._watchdog.close()

    def stop(self) -> None:
        """End the heartbeat's thread."""
        self._running.clear()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def beat(self) -> None:
        """Send one heartbeat; from any thread."""
        status = self._status
        self._watchdog.beat(self._watched)
        fields = {
            "session": status.session,
            "frame": status.frame(),
            "state": status.text(),
            "lifecycle": status.lifecycle,
            "pause": status.pause,
            "checkpoint": status.checkpoint,
        }
        self._topic.publish(json_message(fields))

    def beat_early(self) -> None:
        """Send one that has news, if any are sent now; from any thread."""
        if not self._late:
            self.beat()

    # -- the heartbeat's thread ---------------------------------------------------------------------------

    def _loop(self) -> None:
        next_ns = self._monotonic.now_ns()
        while self._running.is_set():
            if reason := self._reason_to_end(self._monotonic.now_ns()):
                self._end(reason)
                return
            if self._late:
                self._watchdog.beat(self._watched)
            else:
                with self._failures.guarded("a heartbeat", self._logger.error):
                    self.beat()
            next_ns = max(next_ns + BEAT_NS, self._monotonic.now_ns())
            self._monotonic.sleep_until_ns(next_ns)

    def _reason_to_end(self, now_ns: int) -> str:
        """Why no heartbeat may be sent any more; empty if nothing is wrong."""
        if self._failures.only():
            return f"no heartbeat can be published: {self._failures.last}"
        work = self._status.work
        if work is None:
            self._say_late("")
            return ""
        if work.broken():
            return "a worker ended by itself: see the traceback above"
        late = self._hangs.look(work.under_way(), self._limit_ns, now_ns)
        if late is not None and late.hung:
            return f"hung: {late.worker} does not end"
        self._say_late(late.worker if late is not None else "")
        return ""

    def _say_late(self, worker: str) -> None:
        """Log once when a frame becomes late, and send the last heartbeat until it ends; log again when it ends."""
        if worker == self._late:
            return
        self._late = worker
        limit_s = self._limit_ns / 1e9
        if not worker:
            self._status.late = ""
            self._logger.info(f"the late {self._status.RUNS} has ended: the same session goes on")
            return
        self._status.late = f"late: {worker} has been running for more than {limit_s:.1f} s"
        self.beat()
        self._logger.error(f"{self._status.late}; no heartbeat until it ends{self._status.SO}")

    def _end(self, reason: str) -> None:
        """Send a last heartbeat with the reason. Then there are none, so the actuator holds, and the process ends."""
        self.hung = reason.startswith("hung")
        if self.hung:  # the hung frame may hold a lock that an orderly end waits for
            last_resort = threading.Timer(LAST_RESORT_S, os._exit, (1,))
            last_resort.daemon = True
            last_resort.start()
        status = self._status
        status.late = ""
        status.set_state(status.lifecycle, reason, True)  # same lifecycle: the actuator must hold, not disarm
        self.beat()
        self._logger.error(reason)

    def _on_no_guard(self, why: str) -> None:
        self._logger.error(
            f"no guard process: a {self._status.RUNS} that holds the interpreter lock will not be ended: {why}"
        )
