"""A process that ends another one whose interpreter hangs; it is told by bytes on standard input, and ends with it.

Why a process: a thread of the hung one gets no turn, and every timer in it (faulthandler's too) runs on while it is
stopped, so that it would fire the moment a stopped process goes on. From outside one sees that it is stopped, and how
long it waited for a processor, which on a busy machine is most of the time. Only the standard library is imported, and
little of it: this runs beside a robot.

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
AT_LAST = 12  # times the limit, and no machine is so busy
GRACE_S = 2.0  # from SIGABRT, which writes a traceback, to SIGKILL
WATCHED, UNWATCHED = b"w", b"-"  # signs of life: the newest says whether silence from now on is a fault
STOPPED = "Tt"  # by a signal, by a debugger


class OwnTime:
    """How much of the time that passes a process has had for itself: it ran, or nothing of it waited for a processor.

    What it does in its own time is its own doing; in the rest, the machine was busy. The kernel counts both for each
    thread; where it does not, all time is a process's own.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[str, tuple[int, int]] = {}

    def of(self, passed_ns: int) -> int:
        """Of the time since the last call, which took `passed_ns`; of the first call, all of it."""
        now, before = _ran_and_waited(self._pid), self._before
        self._before = now
        ran_ns = waited_ns = 0
        for thread, (ran, waited) in now.items():
            ran_before, waited_before = before.get(thread, (ran, waited))
            ran_ns, waited_ns = ran_ns + ran - ran_before, waited_ns + waited - waited_before
        return min(passed_ns, max(ran_ns, passed_ns - waited_ns))


def _ran_and_waited(pid: int) -> dict[str, tuple[int, int]]:
    """Thread -> how long it ran, and how long it could have and had no processor; nanoseconds since its start."""
    times = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            ran, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="ascii").split()
            times[thread] = int(ran), int(waited)
    except (OSError, ValueError):  # a thread, or the process, has just ended; or the kernel keeps no such count
        return times
    return times


class Silence:
    """How long a watched process has kept silent while it was free to speak.

    Counted in steps of this process: time in which both stood still does not count; nor does time in which the watched
    one waited for a processor, unless that goes on and on.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._watched = limit_s, False
        self._silent_s = self._all_s = 0.0

    def too_long(self, heard: bytes, stopped: bool, own_s: float = STEP_S) -> bool:
        """After one more step: what was heard in it, whether the process is stopped now, and how much of the step it
        had for itself."""
        if heard:
            self._watched = heard.endswith(WATCHED)
        if heard or stopped or not self._watched:
            self._silent_s = self._all_s = 0.0
            return False
        self._silent_s, self._all_s = self._silent_s + own_s, self._all_s + STEP_S
        return self._silent_s > self._limit_s or self._all_s > AT_LAST * self._limit_s


def stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or by a debugger; one that is no more is."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return fields.rpartition(")")[2].split()[0] in STOPPED


def _heard() -> bytes | None:
    """What has come since the last call; None once the other end is closed."""
    try:
        return os.read(0, 1 << 16) or None
    except BlockingIOError:
        return b""


def _end(pid: int) -> None:
    """SIGABRT, on which faulthandler writes where each thread is; SIGKILL where that does not end it."""
    os.kill(pid, signal.SIGABRT)
    for _ in range(round(GRACE_S / STEP_S)):
        time.sleep(STEP_S)
        if os.getppid() != pid:
            return
    os.kill(pid, signal.SIGKILL)


def main(limit_s: float, pid: int) -> None:
    """Watch the parent process until it ends, or until it has been silent for too long and is ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its parent, which may still have to be ended
    os.set_blocking(0, False)
    silence, own = Silence(limit_s), OwnTime(pid)
    while (heard := _heard()) is not None and os.getppid() == pid:
        if heard:
            own = OwnTime(pid)
        if silence.too_long(heard, stopped(pid), STEP_S if heard else own.of(round(STEP_S * 1e9)) / 1e9):
            _end(pid)
            text = f"guard: process {pid} hung: no thread of it got a turn for {limit_s:g} s; ended by SIGABRT\n"
            with suppress(OSError):  # nobody has to read it
                os.write(2, text.encode())
            return
        time.sleep(STEP_S)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
