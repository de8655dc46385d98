"""Which frame is late, and whether it is hung: it had enough CPU time and still did not finish. Nothing here acts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.nodes.agent.watchdog_process import OwnTime

BEAT_NS = 20_000_000
LEAST_LIMIT_NS = 1_000_000_000
LATE_BEATS = 2
WARM_UPS = 5  # a frame may take this many times its duration at warm-up, if that is more
HUNG_NS = 10_000_000_000  # CPU time of the process that a late frame has before it counts as hung
HUNG_LIMITS = 10  # or this many limits, if that is more
AT_LAST = 6  # upper bound in wall time, as a multiple of that, however busy the machine


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
