"""SIGINT and SIGTERM as in rclpy: every context is shut down, blocked executors wake.

Then SIGINT's previous handler is called (KeyboardInterrupt); SIGTERM only ends the contexts, and spin raises
ExternalShutdownException. Handlers only set flags: nothing is deleted while arbitrary code is interrupted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from enum import IntFlag
from types import FrameType
from typing import Any


class SignalHandlerOptions(IntFlag):
    NO = 0
    SIGINT = 1
    SIGTERM = 2
    ALL = 3


class SignalHandlers:
    """Installed signal handlers, and the thread that wakes blocked executors when a signal arrives.

    Python runs its handlers only when the main thread leaves a blocking C call; the wakeup pipe is written at once,
    so its reader can make the main thread leave the call.
    """

    def __init__(self, on_signal: Callable[[], None], wake: Callable[[], None]) -> None:
        self._on_signal, self._wake = on_signal, wake
        self._previous: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._previous_fd = -1

    def install(self, options: SignalHandlerOptions) -> None:
        """Install them, in the main thread only; in another thread, or a second time, nothing happens."""
        if options == SignalHandlerOptions.NO or self._previous:
            return
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if options & SignalHandlerOptions[number.name]:
                self._previous[number] = signal.signal(number, self._handle)
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        self._pipe = read_end, write_end
        self._previous_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        ends = (read_end, self._previous_fd)
        threading.Thread(target=self._watch, args=ends, name="ros-signals", daemon=True).start()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._on_signal()
        previous = self._previous.get(number)
        if callable(previous):
            previous(number, frame)

    def _watch(self, read_end: int, previous_fd: int) -> None:
        while data := os.read(read_end, 64):
            self._wake()
            if previous_fd >= 0:
                os.write(previous_fd, data)
        os.close(read_end)

    def uninstall(self) -> None:
        """Restore the previous handlers, where ours is still installed."""
        if not self._previous or threading.current_thread() is not threading.main_thread():
            return
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous if previous is not None else signal.SIG_DFL)
        self._previous = {}
        if self._pipe is not None:
            current = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(self._previous_fd if current == self._pipe[1] else current)
            os.close(self._pipe[1])  # ends the thread
            self._pipe = None
