"""What a fixed-rate thread needs from the operating system: a scheduling class, a grid of ticks, honest statistics.

Python is not hard real time. What happened is measured and published, never assumed.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np

from auras_ros.clock import Clock

SWITCH_INTERVAL_S = 0.0005  # another thread of the process gives the interpreter up after this long, not 5 ms


def enter_realtime(priority: int, *, all_threads: bool = False) -> str:
    """Put the calling thread (or every thread of the process) into SCHED_FIFO at `priority` (1 to 98).

    Threads started from then on inherit it.

    0 leaves the scheduling class as it is. Returns what was reached, for people: "fifo 50", "other (not asked for)" or
    "other (not permitted: ...)". Never raises for a refusal: the actuator runs either way and says how.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if priority == 0:
        return "other (not asked for)"
    threads = [int(name) for name in os.listdir("/proc/self/task")] if all_threads else [0]
    try:
        for thread in threads:
            _raise(thread, priority)
    except PermissionError:
        return "other (not permitted: needs rtprio in limits.conf or CAP_SYS_NICE)"
    return f"fifo {priority}"


def _raise(thread: int, priority: int) -> None:
    try:
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
    except ProcessLookupError:
        return  # it ended since the list was read


class TickGrid:
    """An absolute grid of ticks. A tick that was missed is skipped and counted, never made up."""

    def __init__(self, clock: Clock, period_ns: int) -> None:
        if period_ns < 1:
            raise ValueError(f"period_ns must be positive, got {period_ns}")
        self._clock, self.period_ns = clock, period_ns
        self._next_ns = clock.now_ns() + period_ns
        self.skipped = 0

    def wait(self) -> int:
        """Sleep until the next tick; returns the time of waking, ns."""
        self._clock.sleep_until_ns(self._next_ns)
        now_ns = self._clock.now_ns()
        missed = max(0, (now_ns - self._next_ns) // self.period_ns)
        self.skipped += missed
        self._next_ns += (missed + 1) * self.period_ns
        return now_ns


@dataclass(frozen=True)
class IntervalError:
    """|interval - period| over the last n intervals, milliseconds."""

    n: int
    p50: float
    p99: float
    max: float


class IntervalMeter:
    """The last `size` intervals between ticks, against their period. Warm-up ticks are left out."""

    def __init__(self, period_ns: int, size: int = 3000, warmup: int = 20) -> None:
        self._period_ns = period_ns
        self._warmup = max(1, warmup)  # the first tick has no interval
        self._errors_ns = np.zeros(size, dtype=np.int64)
        self._count, self._last_ns = 0, 0

    def tick(self, now_ns: int) -> None:
        if self._warmup > 0:
            self._warmup -= 1
        else:
            self._errors_ns[self._count % len(self._errors_ns)] = abs(now_ns - self._last_ns - self._period_ns)
            self._count += 1
        self._last_ns = now_ns

    def summary(self) -> IntervalError | None:
        """None before the first counted interval."""
        n = min(self._count, len(self._errors_ns))
        if n == 0:
            return None
        p50, p99 = np.percentile(self._errors_ns[:n], [50, 99]) / 1e6
        return IntervalError(n, float(p50), float(p99), float(self._errors_ns[:n].max() / 1e6))
