"""Ends a process whose middleware does not come back from a wait.

Fast DDS counts up to the sequence number that a HEARTBEAT claims, one by one, and holds the reader's lock meanwhile: one
forged packet keeps a thread of it busy for hours. The executor, which waits for that lock, runs no callback any more and
cannot be interrupted. Only a new process helps, and the supervisor starts one. Threads of the node's own run on until
then: the actuator's has been holding for seconds, because it hears nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from auras_ros.exit_status import BROKEN
from auras_ros.ros import SingleThreadedExecutor

POLL_S = 1.0
STUCK_POLLS = 10  # so often the same wait is seen, though it should last for a fraction of a second


class WatchedExecutor(SingleThreadedExecutor):  # type: ignore[misc]  # rclpy has no types
    """rclpy's, which tells since when it has been waiting."""

    waiting_since_s: float | None = None

    def wait_for_ready_callbacks(self, *words: Any, **options: Any) -> Any:
        self.waiting_since_s = time.monotonic()
        try:
            return super().wait_for_ready_callbacks(*words, **options)
        finally:
            self.waiting_since_s = None


class WaitGuard:
    """Watches one executor from a thread of its own, until `close`."""

    def __init__(self, executor: WatchedExecutor) -> None:
        self._executor = executor
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="wait guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        seen_since_s: float | None = None
        polls = 0  # and no time: a process that was stopped, or a machine that slept, is not stuck
        while not self._closed.wait(POLL_S):
            since_s = self._executor.waiting_since_s
            polls = polls + 1 if since_s is not None and since_s == seen_since_s else 0
            seen_since_s = since_s
            if polls >= STUCK_POLLS:
                text = (
                    f"fatal: the middleware has not come back from a wait for {polls * POLL_S:g} s, which a broken or "
                    "forged packet can cause: this process ends, to be started again"
                )
                print(text, file=sys.stderr, flush=True)
                os._exit(BROKEN)
