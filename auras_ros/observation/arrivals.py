"""When images come: the period of the camera, how far it strays from it, and when the next image is due.

Several cameras count as one: their images make a set, and a set is there with the last of them, so its period is that
of the slowest. It learns from the times at which images were received (monotonic clock), never from stamps, and it
never waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

KEPT = 16  # intervals: half a second of a camera of 30 Hz, under two of one of 10 Hz
LEAST = 4  # before that many nothing is said
TOGETHER = 0.6  # of a period: images of one set lie closer than that
MISSED = 2  # images in a row: then the camera has stopped
REGULAR = 0.25  # of a period: where half of the intervals stray further nothing can be told in advance


class Arrivals:
    """`came` is of whoever receives, all else of any thread.

    period_ns: between two sets; None while too few have come, or where they come without any order. jitter_ns: how far
    nine of ten intervals stray from the period, at most.
    """

    def __init__(self, cameras: Iterable[str]) -> None:
        self._cameras = frozenset(cameras)
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything: cameras may have another pace from now on."""
        with self._lock:
            self._seen: dict[str, int] = {}  # camera -> when the image came that belongs to the next set
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
        """An image that was lost makes one long interval: the median does not mind, and its rest counts as jitter."""
        intervals = np.array([later - earlier for earlier, later in pairwise(self._sets_ns)], dtype=np.float64)
        self.period_ns = None
        if len(intervals) < LEAST:
            return
        period = float(np.median(intervals))
        strays = np.abs(intervals - period * np.maximum(1, np.round(intervals / period)))
        if period > 0 and np.median(strays) <= REGULAR * period:
            self.period_ns, self.jitter_ns = round(period), round(float(np.percentile(strays, 90)))

    def newest_ns(self) -> int | None:
        """When the newest whole set came."""
        with self._lock:
            return self._sets_ns[-1] if self._sets_ns else None

    def is_fresh(self, now_ns: int) -> bool:
        """Whether the newest set came less than a tenth of a period ago."""
        newest_ns, period_ns = self.newest_ns(), self.period_ns
        return newest_ns is not None and period_ns is not None and 10 * (now_ns - newest_ns) <= period_ns

    def due_ns(self, now_ns: int) -> tuple[int, int] | None:
        """(when the next set should come, when it is no use to wait for that one any more); None where none is on its
        way: the pace is not known, or two in a row have missed their time by half a period."""
        newest_ns, period_ns = self.newest_ns(), self.period_ns
        if newest_ns is None or period_ns is None:
            return None
        number = max(1, round((now_ns - newest_ns) / period_ns))
        due_ns = newest_ns + number * period_ns
        return None if number > MISSED else (due_ns, due_ns + period_ns // 2)
