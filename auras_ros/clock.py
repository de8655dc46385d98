"""Time behind one interface, so that every scheduler runs on a real clock or on a test's virtual one.

All times are nanoseconds on one monotonic scale, but for `boot_ns`. Wall-clock time never appears here: it jumps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

CLOSE_NS = 200_000  # two readings are close together within this time
READINGS = 5


class SchedulerClock(Protocol):
    """now_ns never goes back; sleep_until_ns returns at or after the given time, at once if it has passed.

    boot_ns is a scale of its own, which never goes back either and also counts the time of a suspended machine.
    """

    def now_ns(self) -> int: ...

    def boot_ns(self) -> int: ...

    def sleep_until_ns(self, at_ns: int) -> None: ...


class MonotonicClock:
    """CLOCK_MONOTONIC: shared by all processes of a host, untouched by changes of the date."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def sleep_until_ns(self, at_ns: int) -> None:
        while (left := at_ns - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)


class VirtualClock:
    """Time that passes only when somebody sleeps or advances it."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def boot_ns(self) -> int:
        return self._now_ns

    def sleep_until_ns(self, at_ns: int) -> None:
        self._now_ns = max(self._now_ns, at_ns)

    def advance(self, duration_ns: int) -> None:
        if duration_ns < 0:
            raise ValueError(f"duration_ns must not be negative, got {duration_ns}")
        self._now_ns += duration_ns


def difference_ns(of: Callable[[], int], since: Callable[[], int]) -> int:
    """How far the clock `of` is ahead of the clock `since`, ns. Both are read again where this thread had to wait
    between two readings, READINGS times at most; those that are closest together count."""
    readings = list[tuple[int, int]]()
    for _ in range(READINGS):
        before_ns, read_ns, after_ns = since(), of(), since()
        readings.append((after_ns - before_ns, read_ns - (before_ns + after_ns) // 2))
        if after_ns - before_ns <= CLOSE_NS:
            break
    return min(readings)[1]
