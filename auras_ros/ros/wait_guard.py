"""Ends a process whose middleware does not come back from a call.

Fast DDS counts up to the sequence number that a HEARTBEAT claims, one by one, and holds the reader's lock meanwhile:
one forged packet keeps a thread of it busy for hours. The executor, which waits for that lock, runs no callback any
more and cannot be interrupted. Only a new process helps, and the supervisor starts one. Threads of the node's own run
on until then: the actuator's has been holding for seconds, because it hears nothing.
"""

from __future__ import annotations

import os
import sys
import threading

from auras_ros.exit_status import BROKEN
from auras_ros.ros.backend import BACKEND

POLL_S = 1.0
STUCK_POLLS = 10  # so often the same call is seen; executors ask for waits of a fraction of a second
PACKAGE = os.sep + "rclpy" + os.sep


class WaitGuard:
    """Watches the thread that makes it, under rclpy, from a thread of its own until `close`. Cyclone DDS, in our layer,
    does not hang, and is not watched. That thread calls `note_turn` after each callback or wait."""

    def __init__(self) -> None:
        self._turns = 0
        self._watched = threading.get_ident()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="wait guard", daemon=True)
        if BACKEND == "rclpy":
            self._thread.start()

    def note_turn(self) -> None:
        self._turns += 1

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _call(self) -> tuple[int, int, int] | None:
        """The turn and the call in which the thread is now, if rclpy itself calls the middleware: a callback that takes
        long is elsewhere."""
        frame = sys._current_frames().get(self._watched)
        if frame is None or PACKAGE not in frame.f_code.co_filename:
            return None
        return self._turns, id(frame), frame.f_lasti

    def _watch(self) -> None:
        previous = None
        polls = 0  # and no time: a process that was stopped, or a machine that slept, is not stuck
        while not self._closed.wait(POLL_S):
            call = self._call()
            polls = polls + 1 if call is not None and call == previous else 0
            previous = call
            if polls >= STUCK_POLLS:
                text = (
                    f"fatal: the middleware has not come back from a call for {polls * POLL_S:g} s, which a broken or "
                    "forged packet can cause: this process ends, to be started again"
                )
                print(text, file=sys.stderr, flush=True)
                os._exit(BROKEN)
