"""GPU time on the host's clock, so that one timeline can show both.

CUDA gives the milliseconds between two events in single precision: after 17 s the resolution is 2 µs, after ten minutes
62 µs, and the GPU's clock also drifts against the host's. So both clocks are read together again whenever the last
reading is older than a second.
"""

from __future__ import annotations

import threading
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from auras_ros.clock import SchedulerClock

if TYPE_CHECKING:
    import torch

REFRESH_NS = 1_000_000_000
READINGS = 5  # the most precise of these counts: other work on the host disturbs a reading


class Anchor(NamedTuple):
    """One instant on both clocks; the host's is known to within `error_ns`."""

    event: torch.cuda.Event
    host_ns: int
    error_ns: int

    def span_ns(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> tuple[int, int]:
        """Start and end, on the host's clock, of what ran between two completed events."""
        start_ns = self.host_ns + round(self.event.elapsed_time(begin) * 1e6)
        return start_ns, start_ns + max(0, round(begin.elapsed_time(end) * 1e6))


class HostScale:
    """Reads both clocks, on a stream of its own."""

    def __init__(self, device: torch.device, clock: SchedulerClock) -> None:
        import torch

        self._cuda = torch.cuda
        self._stream = torch.cuda.Stream(device)
        self._clock = clock
        self._lock = threading.Lock()
        self._anchor = self._read()

    def anchor(self) -> Anchor:
        """An anchor from before everything that is launched later."""
        with self._lock:
            if self._clock.now_ns() - self._anchor.host_ns > REFRESH_NS:
                self._anchor = self._read()
            return self._anchor

    def _read(self) -> Anchor:
        return min((self._read_once() for _ in range(READINGS)), key=attrgetter("error_ns"))

    def _read_once(self) -> Anchor:
        event = self._cuda.Event(enable_timing=True)
        before_ns = self._clock.now_ns()
        event.record(self._stream)
        event.synchronize()
        after_ns = self._clock.now_ns()
        return Anchor(event, (before_ns + after_ns) // 2, (after_ns - before_ns) // 2)
