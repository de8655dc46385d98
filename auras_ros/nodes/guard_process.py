"""A process that ends another one whose interpreter hangs; it is told by bytes on standard input, and ends with it.

Why a process: a thread of the hung one gets no turn, and every timer in it (faulthandler's too) runs on while it is
stopped, so that it would fire the moment a stopped process goes on. From outside one sees that it is stopped. Only the
standard library is imported, and little of it: this runs beside a robot.

usage: python -I -S guard_process.py LIMIT_S PID
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

STEP_S = 0.1
GRACE_S = 2.0  # from SIGABRT, which writes a traceback, to SIGKILL
WATCHED, UNWATCHED = b"w", b"-"  # signs of life: the newest says whether silence from now on is a fault
STOPPED = "Tt"  # by a signal, by a debugger


class Silence:
    """How long a watched process has kept silent while it was free to speak.

    Counted in steps of this process: time in which both stood still does not count.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._silent_s, self._watched = limit_s, 0.0, False

    def too_long(self, heard: bytes, stopped: bool) -> bool:
        """After one more step: what was heard in it, and whether the process is stopped now."""
        if heard:
            self._watched = heard.endswith(WATCHED)
        if heard or stopped or not self._watched:
            self._silent_s = 0.0
            return False
        self._silent_s += STEP_S
        return self._silent_s > self._limit_s


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
    silence = Silence(limit_s)
    while (heard := _heard()) is not None and os.getppid() == pid:
        if silence.too_long(heard, stopped(pid)):
            _end(pid)
            text = f"guard: process {pid} hung: no thread of it got a turn for {limit_s:g} s; ended by SIGABRT\n"
            os.write(2, text.encode())
            return
        time.sleep(STEP_S)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
