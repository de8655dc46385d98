"""Completion times of requests that come at a fixed rate and wait in a queue, first come first served.

The text on figure 11 measures this (Auras 6.3). A robot would use only the newest observation; here every one is a job,
so a schedule that cannot keep up shows how far it falls behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.measure.feed import Feed
from auras_ros.measure.running import Running
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin


@dataclass(frozen=True)
class Completed:
    """One run. arrived_ns, jct_ns: of the finished jobs, by arrival. ended_ns: of every output, in order."""

    jobs: int
    interval_ns: int
    arrived_ns: tuple[int, ...]
    jct_ns: tuple[int, ...]
    ended_ns: tuple[int, ...]

    def fields(self) -> dict[str, Any]:
        """For a row. grows_ms: how much longer a job takes than the one before, from the means of the first and last
        third."""
        jct_ms = [each / 1e6 for each in self.jct_ns]
        third = max(1, len(jct_ms) // 3)
        apart = len(jct_ms) - third
        return {
            "interval_ms": self.interval_ns / 1e6,
            "jobs": self.jobs,
            "finished": len(jct_ms),
            "rate_hz": rate_hz(self.ended_ns),
            "jct_ms": median(jct_ms) if jct_ms else None,
            "jct_ms_first": jct_ms[0] if jct_ms else None,
            "jct_ms_last": jct_ms[-1] if jct_ms else None,
            "grows_ms": (fmean(jct_ms[-third:]) - fmean(jct_ms[:third])) / apart if apart > 0 else None,
            "spread_percent": spread_percent(self.ended_ns),
        }


def rate_hz(ended_ns: Sequence[int]) -> float | None:
    """Outputs per second between the first and the last; None for fewer than two."""
    return (len(ended_ns) - 1) * 1e9 / (ended_ns[-1] - ended_ns[0]) if len(ended_ns) > 1 else None


def spread_percent(ended_ns: Sequence[int]) -> float | None:
    """Standard deviation of the intervals between outputs, in percent of their mean; None for fewer than three
    outputs."""
    gaps = [after - before for before, after in pairwise(ended_ns)]
    return 100 * pstdev(gaps) / fmean(gaps) if len(gaps) > 1 else None


class Queue:
    """Jobs that arrive every `interval_ns` from `start_ns` on, taken in this order. The caller holds a lock.

    If no job waits, the last one is returned again: a pipeline continues the requests in flight with it, and no request
    begins from it a second time.
    """

    def __init__(self, feed: Feed, start_ns: int, interval_ns: int, jobs: int) -> None:
        self._feed, self._jobs, self._taken = feed, jobs, 0
        self._last: Latched | None = None
        self.arrives_ns = [start_ns + i * interval_ns for i in range(jobs)]

    def __call__(self, now_ns: int) -> Latched | None:
        """The oldest job not yet taken, if it has arrived, else the job taken last."""
        if self._taken == self._jobs or self.arrives_ns[self._taken] > now_ns:
            return self._last
        at_ns, seen = self.arrives_ns[self._taken], self._feed(now_ns)
        self._taken += 1
        self._last = Latched(seen.images, seen.state, ObservationOrigin(at_ns, at_ns))
        return self._last


class _Outputs:
    """The time of each job's chunk. `over` is set after `wanted` chunks."""

    def __init__(self, wanted: int, now_ns: Callable[[], int]) -> None:
        self.over = threading.Event()
        self._wanted, self._now_ns = wanted, now_ns
        self.jct_ns: dict[int, int] = {}
        self.ended_ns: list[int] = []
        self._lock = threading.Lock()

    def emit(self, emission: Emission) -> None:
        with self._lock:
            came_ns, now_ns = emission.contexts[0].mono_ns, self._now_ns()
            if self.over.is_set():
                return
            self.ended_ns.append(now_ns)
            self.jct_ns[came_ns] = now_ns - came_ns
            if len(self.ended_ns) == self._wanted:
                self.over.set()


def complete(
    executor: Executor, feed: Feed, interval_ns: int, jobs: int, limit_s: float, threads: int = 1
) -> Completed:
    """Run so many jobs, or as many as the time allows, on a warm executor. Raises RuntimeError if a worker fails."""
    clock = MonotonicClock()
    executor.reset()  # drops requests of an earlier run
    start_ns = clock.now_ns() + 1_000_000
    queue, outputs = Queue(feed, start_ns, interval_ns, jobs), _Outputs(jobs, clock.now_ns)
    end_ns = start_ns + round(limit_s * 1e9)
    with Running(executor, queue, outputs.emit, threads=threads) as live:
        for at_ns in [*queue.arrives_ns, end_ns]:
            live.wait(outputs.over, (min(at_ns, end_ns) - clock.now_ns()) / 1e9)
            live.arrived()
        outputs.over.set()
    arrived_ns = tuple(sorted(outputs.jct_ns))
    jct_ns = tuple(outputs.jct_ns[at] for at in arrived_ns)
    return Completed(jobs, interval_ns, arrived_ns, jct_ns, tuple(outputs.ended_ns))


def saturate(executor: Executor, feed: Feed, outputs: int, limit_s: float, threads: int = 1) -> tuple[int, ...]:
    """The times (ns, in order) of so many outputs, with an observation always available."""
    executor.reset()  # drops requests of an earlier run
    came = _Outputs(outputs, MonotonicClock().now_ns)
    with Running(executor, feed, came.emit, threads=threads) as live:
        live.wait(came.over, limit_s)
        came.over.set()
    return tuple(came.ended_ns)
