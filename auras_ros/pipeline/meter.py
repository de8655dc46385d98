"""How long frames take, and since when one is running: for diagnostics, and to find one that never ends.

It records times. Callers decide what is too long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

KEPT = 1000


@dataclass(frozen=True)
class FrameTimes:
    """Durations of the last n frames, milliseconds."""

    n: int
    p50_ms: float
    p99_ms: float


class FrameMeter:
    """Each worker's thread calls `began` and `ended`; any thread may read."""

    def __init__(self, workers: Iterable[str]) -> None:
        self._began_ns: dict[str, int | None] = dict.fromkeys(workers)
        self._durations_ns = np.zeros(KEPT, np.int64)  # a ring buffer, allocated once
        self._lock = threading.Lock()
        self.frames = 0

    def began(self, worker: str, now_ns: int) -> None:
        self._began_ns[worker] = now_ns

    def ended(self, worker: str, now_ns: int) -> None:
        began_ns, self._began_ns[worker] = self._began_ns[worker], None
        if began_ns is not None:
            with self._lock:
                self._durations_ns[self.frames % KEPT] = now_ns - began_ns
                self.frames += 1

    def under_way(self) -> dict[str, int]:
        """Worker -> when its frame began, for frames that have not ended."""
        return {worker: began_ns for worker, began_ns in self._began_ns.items() if began_ns is not None}

    def times(self) -> FrameTimes | None:
        """None before the first frame has ended."""
        with self._lock:
            durations = self._durations_ns[: self.frames].copy()
        if durations.size == 0:
            return None
        p50, p99 = np.percentile(durations, [50, 99]) / 1e6
        return FrameTimes(len(durations), float(p50), float(p99))
