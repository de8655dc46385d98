"""What a fixed-rate thread needs from the operating system: a scheduling class, locked memory, a grid of ticks.

Python is not hard real time. What was granted is reported, timing is measured, and nothing is assumed; a refusal never
stops the process. How to get it granted: docs/realtime.md.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from auras_ros.clock import SchedulerClock

# Another thread gives up the interpreter lock after this time instead of 5 ms. It must be shorter than what Python code
# runs between two calls that release the lock: rclpy's executor releases it for microseconds many times a message, and
# at each release CPython begins to count anew for the thread that waits (docs/realtime.md).
SWITCH_INTERVAL_S = 0.00005
TOUCH_MIB = 16  # heap that is touched beforehand; the actuator's ticks and messages need far less
ROOM_BYTES = 2 << 30  # room for later mappings: each thread needs a stack and an arena of the allocator
MCL_CURRENT, MCL_FUTURE = 1, 2
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt
CAP_IPC_LOCK = 14
PROCESS_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class RealtimeGranted:
    """What the process requested and got, as texts. One that begins with "not" was not granted."""

    scheduling: str
    memory: str
    collector: str


def configure_process(priority: int, *, lock: bool = True) -> RealtimeGranted:
    """Set up the whole process, once, after its nodes are built and before it ticks.

    `priority` as for `enter_realtime`, which each fixed-rate thread calls for itself too. 0 requests no scheduling
    class, `lock=False` no locked memory. Automatic garbage collection is switched off in any case.
    """
    memory = lock_memory() if lock else "not asked for"
    return RealtimeGranted(enter_realtime(priority, all_threads=True), memory, freeze_collector())


def enter_realtime(priority: int, *, all_threads: bool = False) -> str:
    """Put the calling thread (or every thread of the process) into SCHED_FIFO at `priority` (1 to 98).

    Threads that are started later inherit it. 0 does not change the scheduling class. Returns the result as text: "fifo
    50", "other (not asked for)" or "other (not permitted: ...)". A refusal raises nothing: the actuator runs either way
    and reports it.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if priority == 0:
        return "other (not asked for)"
    threads = [int(name) for name in os.listdir("/proc/self/task")] if all_threads else [0]
    try:
        for thread in threads:
            with suppress(ProcessLookupError):  # it ended since the list was read
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:
        return "other (not permitted: needs rtprio in limits.conf or CAP_SYS_NICE)"
    return f"fifo {priority}"


def lock_memory(touch_mib: int = TOUCH_MIB) -> str:
    """Lock current and future mappings, so that no tick waits for a page; touch `touch_mib` of heap.

    Returns "locked, ..." or "not locked (...)" with what is missing. Nothing is locked if the limit is too small for
    this process: later mappings would fail, in the middle of the work.
    """
    limit, mapped = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], _status("VmSize", 10) * 1024
    if limit != resource.RLIM_INFINITY and not _may_lock() and limit < mapped + ROOM_BYTES:
        return (
            f"not locked (the limit is {limit >> 20} MiB, {(mapped + ROOM_BYTES) >> 20} are needed: "
            "memlock in limits.conf, or CAP_IPC_LOCK)"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE):
        return f"not locked (mlockall: {os.strerror(ctypes.get_errno())})"
    if not _keep_freed_memory(libc):
        return "locked, heap not made present (this C library has no mallopt)"
    _touch(touch_mib << 20)
    return f"locked, {touch_mib} MiB of heap present"


def _status(key: str, base: int) -> int:
    """A number of /proc/self/status; 0 if it is missing."""
    for line in PROCESS_STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return int(rest.split()[0], base)
    return 0


def _may_lock() -> bool:
    """Whether the limit does not apply to this process (CAP_IPC_LOCK)."""
    return bool(_status("CapEff", 16) >> CAP_IPC_LOCK & 1)


def _keep_freed_memory(libc: ctypes.CDLL) -> bool:
    """Keep freed memory in the process, and map no large blocks separately: both would cause page faults."""
    mallopt = getattr(libc, "mallopt", None)
    return mallopt is not None and bool(mallopt(M_TRIM_THRESHOLD, -1)) and bool(mallopt(M_MMAP_MAX, 0))


def _touch(size: int) -> None:
    """Allocate `size` bytes of heap, write to each page, and free them; the allocator keeps them."""
    page = resource.getpagesize()
    bytearray(size)[::page] = bytes(-(-size // page))


def freeze_collector() -> str:
    """Switch automatic garbage collection off, and exclude all current objects from later collections. The caller must
    call `gc.collect` from time to time, in another thread than the ticks': it holds the interpreter lock meanwhile, but
    scans only objects made since, so it is short (once a second: 0.3 to 0.4 ms).

    It may be called again: newer objects are frozen too.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    return f"off, {gc.get_freeze_count()} objects frozen"


class TickGrid:
    """An absolute grid of ticks. A tick that was missed is skipped and counted, never made up."""

    def __init__(self, clock: SchedulerClock, period_ns: int) -> None:
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
    """The last `size` intervals between ticks, compared with their period. Warm-up ticks are not counted."""

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
