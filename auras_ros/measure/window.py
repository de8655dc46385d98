"""How long one window is, and what came in it: chunks per second, and how old what they were made of is."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from auras_ros.pipeline.request import Emission


class Length(NamedTuple):
    """A window ends once every worker has made `chunks` chunks and it has lasted `seconds`, or after `limit_s`."""

    chunks: int = 3
    seconds: float = 1.0
    limit_s: float = 30.0


class Meter:
    """When each worker emitted, in a window that begins now. `over` is set when the window is long enough; what comes
    later does not count."""

    def __init__(self, workers: int, length: Length, now_ns: Callable[[], int]) -> None:
        self.over = threading.Event()
        self._workers, self._length, self._now_ns, self._began_ns = workers, length, now_ns, now_ns()
        self._came: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)  # of a worker: (when, its frame)
        self._seen: list[tuple[int, int]] = []  # (time, stamp of the newest observation used so far)
        self._lock = threading.Lock()

    def emit(self, emission: Emission) -> None:
        """Called in the worker's thread, which has the worker's name."""
        with self._lock:
            if self.over.is_set():
                return
            now_ns, read_ns = self._now_ns(), emission.contexts[-1].mono_ns
            self._came[threading.current_thread().name].append((now_ns, emission.frame))
            if read_ns >= self._began_ns:  # a context of the window before is as old as the pause between them
                self._seen.append((now_ns, max(read_ns, self._seen[-1][1] if self._seen else read_ns)))
            workers = self._came.values()
            enough = len(workers) == self._workers and all(_after(came) >= self._length.chunks for came in workers)
            if enough and now_ns - min(came[0][0] for came in workers) >= self._length.seconds * 1e9:
                self.over.set()

    def rate(self) -> float:
        """Chunks per second of all workers together. 0 if a worker emitted in fewer than two frames: it used its share
        of the cores, but its rate is not known."""
        workers = list(self._came.values())
        if len(workers) < self._workers or not all(map(_after, workers)):
            return 0.0
        return sum(_after(came) * 1e9 / (came[-1][0] - came[0][0]) for came in workers)

    def staleness_ms(self) -> float | None:
        """How old what the newest chunk's last step read is, averaged over the time from the first chunk that read
        something of this window to the last: a chunk ages until the next one comes. None without two such chunks."""
        whole_ns = self._seen[-1][0] - self._seen[0][0] if self._seen else 0
        if not whole_ns:
            return None
        aged = sum((end - begin) * ((begin + end) / 2 - read) for (begin, read), (end, _) in pairwise(self._seen))
        return aged / whole_ns / 1e6


def _after(came: Sequence[tuple[int, int]]) -> int:
    """Number of chunks after those of the first frame, which were made before the window."""
    return len(came) - sum(frame == came[0][1] for _, frame in came)
