"""Ends this process when its interpreter hangs: while a C call holds the interpreter lock no Python thread can run, not
even the one that detects hung frames.

The guard is a separate process (`watchdog_process`), which is started from here and receives heartbeats.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

from auras_ros.nodes.common import watchdog_process


class Watchdog:
    """`beat` and `close` may be called from any thread. `lost(why)` is called once if there is no guard any more."""

    def __init__(self, limit_s: float, lost: Callable[[str], None]) -> None:
        self._limit_s, self._lost = limit_s, lost
        self._process: subprocess.Popen[bytes] | None = None  # held: Python warns of a child that nobody holds
        self._lock = threading.Lock()  # prevents writing to a closed file descriptor that has been reused
        self._pipe = -1

    def start(self) -> None:
        """Start the guard. Nothing is watched before the first beat."""
        command = [sys.executable, "-I", "-S", watchdog_process.__file__, str(self._limit_s), str(os.getpid())]
        read, write = os.pipe()
        os.set_blocking(write, False)
        try:
            self._process = subprocess.Popen(command, stdin=read)
            self._pipe = write
        except OSError as error:
            os.close(write)
            self._lost(str(error))
        finally:
            os.close(read)

    def beat(self, watched: bool) -> None:
        """Send a heartbeat. watched: from now on a missing heartbeat is a fault."""
        try:
            with self._lock:
                if self._pipe >= 0:
                    os.write(self._pipe, watchdog_process.WATCHED if watched else watchdog_process.UNWATCHED)
        except BlockingIOError:
            return  # the pipe is full, because the guard does not read (somebody stopped it)
        except OSError as error:
            self.close()
            self._lost(str(error))

    def close(self) -> None:
        """Stop watching; the guard ends."""
        with self._lock:
            pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)
