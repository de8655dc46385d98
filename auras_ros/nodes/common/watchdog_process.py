"""A process that ends its parent when the parent's interpreter hangs.

It receives heartbeats as bytes on standard input, and ends with its parent.

Why a process: no thread of a hung process can run, and every timer in it (faulthandler's too) keeps running while it is
stopped, so it would fire the moment a stopped process continues. From outside one can see that it is stopped, and how
long it waited for a processor, which on a busy machine is most of the time. Only the standard library is imported, and
little of it, because this runs beside a robot.

usage: python -I -S watchdog_process.py LIMIT_S PID
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

STEP_S = 0.1
AT_LAST = 12  # upper bound in wall time, as a multiple of the limit, however busy the machine
GRACE_S = 2.0  # from SIGABRT, which writes a traceback, to SIGKILL
WATCHED, UNWATCHED = b"w", b"-"  # heartbeats; the newest decides whether silence from now on is a fault
STOPPED = "Tt"  # by a signal, by a debugger


class OwnTime:
    """How much of the elapsed time is a process's own: it ran, or none of its threads waited for a processor.

    In the rest of the time the machine was busy. The kernel counts both for each thread; if it does not, all time
    counts as the process's own.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[str, tuple[int, int]] = {}

    def of(self, passed_ns: int) -> int:
        """The own time since the last call, which was `passed_ns` ago; at the first call all of it."""
        now, before = _ran_and_waited(self._pid), self._before
        self._before = now
        ran_ns = waited_ns = 0
        for thread, (ran, waited) in now.items():
            ran_before, waited_before = before.get(thread, (ran, waited))
            ran_ns, waited_ns = ran_ns + ran - ran_before, waited_ns + waited - waited_before
        return min(passed_ns, max(ran_ns, passed_ns - waited_ns))


def _ran_and_waited(pid: int) -> dict[str, tuple[int, int]]:
    """Thread -> how long it ran, and how long it waited for a processor; nanoseconds since its start."""
    times = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            ran, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="ascii").split()
            times[thread] = int(ran), int(waited)
    except (OSError, ValueError):  # a thread, or the process, has just ended; or the kernel does not count
        return times
    return times


class Silence:
    """How long a watched process has sent no heartbeat although it could have run.

    Counted in steps of this process, so that time in which both were stopped does not count; nor does time in which the
    watched process waited for a processor, up to AT_LAST times the limit.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._watched = limit_s, False
        self._silent_s = self._all_s = 0.0

    def too_long(self, heard: bytes, stopped: bool, own_s: float = STEP_S) -> bool:
        """Count one more step. heard: the bytes received in it; stopped: whether the process is stopped now; own_s: how
        much of the step was its own time. Returns whether it has been silent for too long."""
        if heard:
            self._watched = heard.endswith(WATCHED)
        if heard or stopped or not self._watched:
            self._silent_s = self._all_s = 0.0
            return False
        self._silent_s, self._all_s = self._silent_s + own_s, self._all_s + STEP_S
        return self._silent_s > self._limit_s or self._all_s > AT_LAST * self._limit_s


def stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or by a debugger, or does not exist any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return fields.rpartition(")")[2].split()[0] in STOPPED


def _heard() -> bytes | None:
    """The bytes received since the last call; None once the other end is closed."""
    try:
        return os.read(0, 1 << 16) or None
    except BlockingIOError:
        return b""


def _end(pid: int) -> None:
    """Send SIGABRT, at which faulthandler prints all threads' stacks; then SIGKILL if the process has not ended."""
    os.kill(pid, signal.SIGABRT)
    for _ in range(round(GRACE_S / STEP_S)):
        time.sleep(STEP_S)
        if os.getppid() != pid:
            return
    os.kill(pid, signal.SIGKILL)


def main(limit_s: float, pid: int) -> None:
    """Watch the parent process until it ends, or until it has been silent for too long and is ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # this ends with its parent, which may hang while ending
    os.set_blocking(0, False)
    silence, own = Silence(limit_s), OwnTime(pid)
    while (heard := _heard()) is not None and os.getppid() == pid:
        if heard:
            own = OwnTime(pid)
        if silence.too_long(heard, stopped(pid), STEP_S if heard else own.of(round(STEP_S * 1e9)) / 1e9):
            _end(pid)
            text = f"guard: process {pid} hung: none of its threads could run for {limit_s:g} s; ended by SIGABRT\n"
            with suppress(OSError):  # standard error may be closed
                os.write(2, text.encode())
            return
        time.sleep(STEP_S)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
