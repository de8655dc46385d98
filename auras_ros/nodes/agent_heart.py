"""The agent's heartbeat, from a thread of its own in every state of its life; and the watch over frames that hang.

A heart that beats promises that frames come to an end. When one does not, the last beat says so and the heart stops:
the actuator holds, and the process ends to be started again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from auras_ros.clock import MonotonicClock

BEAT_NS = 20_000_000
LEAST_LIMIT_NS = 1_000_000_000
LATE_BEATS = 2
WARM_UPS = 5  # a frame may take this many times what it took at warm-up, where that is more


def frame_limit_ns(warm_up_ns: int) -> int:
    """How long a frame may take before it counts as hung: detected within a second, or as the policy is slow."""
    return max(LEAST_LIMIT_NS - 5 * BEAT_NS, WARM_UPS * warm_up_ns)


class HangWatch:
    """Counts how long the same frame has been under way, by its own beats: a process that was stopped as a whole, or a
    machine that stood still, is no hung frame. A beat that comes late counts as two, however late it is: such a gap is
    the actuator's to act on, which takes a silent heart for a lost agent."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # strand -> (when its frame began, how long it was seen since)
        self._last_ns: int | None = None

    def look(self, under_way: dict[str, int], limit_ns: int, now_ns: int) -> str:
        """The strand whose frame has been under way for too long; empty if there is none."""
        passed_ns = 0 if self._last_ns is None else min(now_ns - self._last_ns, LATE_BEATS * BEAT_NS)
        self._last_ns = now_ns
        seen: dict[str, tuple[int, int]] = {}
        for strand, began_ns in under_way.items():
            before = self._seen.get(strand)
            seen[strand] = began_ns, before[1] + passed_ns if before and before[0] == began_ns else 0
        self._seen = seen
        return next((strand for strand, (_, seen_ns) in seen.items() if seen_ns > limit_ns), "")


class Heart:
    """beat() publishes one heartbeat; check() says why the heart must stop, empty while it need not."""

    def __init__(self, beat: Callable[[], None], check: Callable[[int], str], ended: Callable[[str], None]) -> None:
        self._beat, self._check, self._ended = beat, check, ended
        self._monotonic = MonotonicClock()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._running.set()
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, *_: Any) -> None:
        self._running.clear()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _loop(self) -> None:
        next_ns = self._monotonic.now_ns()
        while self._running.is_set():
            if reason := self._check(self._monotonic.now_ns()):
                self._ended(reason)
                return
            self._beat()
            next_ns = max(next_ns + BEAT_NS, self._monotonic.now_ns())
            self._monotonic.sleep_until_ns(next_ns)
