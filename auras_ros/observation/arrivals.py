"""When images arrive: the camera's period, its jitter, and when the next image is due.

Several cameras count as one: a set is complete with the last of their images, so its period is that of the slowest
camera. The period is learned from the times at which images were received (monotonic clock), never from stamps. This
module never waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

KEPT = 16  # intervals: half a second at 30 Hz, under two seconds at 10 Hz
LEAST = 4  # intervals; with fewer there is no period
TOGETHER = 0.6  # of a period: images of one set are closer together
MISSED = 2  # overdue images in a row: the camera has stopped
REGULAR = 0.25  # of a period: if half of the intervals differ by more, nothing is predicted


class Arrivals:
    """`came` is called by the thread that receives images, everything else by any thread.

    period_ns: time between two sets; None if too few have arrived, or if they are irregular. jitter_ns: how far nine of
    ten intervals differ from the period, at most.
    """

    def __init__(self, cameras: Iterable[str]) -> None:
        self._cameras = frozenset(cameras)
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything: cameras may have another period from now on."""
        with self._lock:
            self._seen: dict[str, int] = {}  # camera -> when its image of the next set arrived
            self._sets_ns: deque[int] = deque(maxlen=KEPT + 1)
            self.period_ns: int | None = None
            self.jitter_ns = 0

    def came(self, camera: str, at_ns: int) -> None:
        """A new image of this camera can be used from `at_ns` on."""
        with self._lock:
            self._seen[camera] = at_ns
            if len(self._seen) < len(self._cameras):
                return
            if self.period_ns is not None and len(self._cameras) > 1:
                oldest_ns = at_ns - TOGETHER * self.period_ns
                self._seen = {name: seen_ns for name, seen_ns in self._seen.items() if seen_ns >= oldest_ns}
            if len(self._seen) == len(self._cameras):
                self._seen = {}
                self._sets_ns.append(at_ns)
                self._learn()

    def _learn(self) -> None:
        """A lost image makes one long interval: it does not move the median, and its remainder counts as jitter."""
        intervals = np.array([later - earlier for earlier, later in pairwise(self._sets_ns)], dtype=np.float64)
        self.period_ns = None
        if len(intervals) < LEAST:
            return
        period = float(np.median(intervals))
        strays = np.abs(intervals - period * np.maximum(1, np.round(intervals / period)))
        if period > 0 and np.median(strays) <= REGULAR * period:
            self.period_ns, self.jitter_ns = round(period), round(float(np.percentile(strays, 90)))

    def newest_ns(self) -> int | None:
        """When the newest complete set arrived."""
        with self._lock:
            return self._sets_ns[-1] if self._sets_ns else None

    def is_fresh(self, now_ns: int) -> bool:
        """Whether the newest set arrived at most a tenth of a period ago."""
        newest_ns, period_ns = self.newest_ns(), self.period_ns
        return newest_ns is not None and period_ns is not None and 10 * (now_ns - newest_ns) <= period_ns

    def due_ns(self, now_ns: int) -> tuple[int, int] | None:
        """(when the next set is due, until when to wait for it); None if none is expected: the period is unknown, or
        two in a row are overdue by half a period."""
        newest_ns, period_ns = self.newest_ns(), self.period_ns
        if newest_ns is None or period_ns is None:
            return None
        number = max(1, round((now_ns - newest_ns) / period_ns))
        due_ns = newest_ns + number * period_ns
        return None if number > MISSED else (due_ns, due_ns + period_ns // 2)
