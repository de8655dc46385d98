"""Has this process ended when its interpreter hangs: a call into C that keeps it lets no Python thread run, the watch
over hung frames included.

The guard is a process of its own (`watchdog_process`); here it is started and told. It decides nothing here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

from auras_ros.nodes.agent import watchdog_process


class Watchdog:
    """`beat` and `close` are of any thread. `lost(why)` is called once where there is no guard any more."""

    def __init__(self, limit_s: float, lost: Callable[[str], None]) -> None:
        self._limit_s, self._lost = limit_s, lost
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # nobody writes to a number that by now is another file's
        self._pipe = -1

    def start(self) -> None:
        """Until the first beat nothing is watched."""
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
        """A sign of life. watched: from now on silence is a fault."""
        try:
            with self._lock:
                if self._pipe >= 0:
                    os.write(self._pipe, watchdog_process.WATCHED if watched else watchdog_process.UNWATCHED)
        except BlockingIOError:
            return  # a guard that does not read (stopped by somebody) has enough to read
        except OSError as error:
            self.close()
            self._lost(str(error))

    def close(self) -> None:
        """Watch no longer; the guard ends."""
        with self._lock:
            pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)
