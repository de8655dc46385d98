"""The bounded queue between whoever asks and the engine: it is full, or the request will be answered."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.request import EngineClosedError, EngineFullError


class Intake:
    """limit: requests that have been taken and have not ended. Safe in several threads."""

    def __init__(self, limit: int) -> None:
        self._limit, self._open, self._closed = limit, 0, ""
        self._queue: list[tuple[tuple[int, int], ActiveRequest]] = []
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._woken = False

    def put(self, active: ActiveRequest) -> None:
        """Raises EngineFullError or EngineClosedError."""
        with self._lock:
            if self._closed:
                raise EngineClosedError(self._closed)
            if self._open >= self._limit:
                raise EngineFullError(f"the engine is full: {self._open} requests run or wait, {self._limit} at most")
            self._open += 1
            heapq.heappush(self._queue, (active.order, active))
        self.wake()

    def take(self) -> ActiveRequest | None:
        """The next one."""
        with self._lock:
            return heapq.heappop(self._queue)[1] if self._queue else None

    def take_first(self, condition: Callable[[ActiveRequest], bool]) -> ActiveRequest | None:
        """The first one, in order, that fulfils the condition. Called by whoever takes, and nobody else takes."""
        with self._lock:
            waiting = sorted(self._queue)
        for entry in waiting:
            if condition(entry[1]):
                with self._lock:
                    self._queue.remove(entry)
                    heapq.heapify(self._queue)
                return entry[1]
        return None

    def take_if(self, condition: Callable[[ActiveRequest], bool]) -> list[ActiveRequest]:
        """Those that wait and fulfil the condition, out of their turn."""
        with self._lock:
            taken = [entry for entry in self._queue if condition(entry[1])]
            for entry in taken:
                self._queue.remove(entry)
            heapq.heapify(self._queue)
            return [each for _, each in taken]

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline of those that wait."""
        with self._lock:
            return min((each.deadline_ns for _, each in self._queue if each.deadline_ns is not None), default=None)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def ended(self) -> None:
        """One request has ended: there is room for another."""
        with self._lock:
            self._open -= 1

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return self._open

    def close(self, reason: str) -> None:
        """Refuses every request from now on."""
        with self._lock:
            self._closed = self._closed or reason
        self.wake()

    def wake(self) -> None:
        with self._lock:
            self._woken = True
            self._came.notify_all()

    def wait(self, timeout_s: float | None) -> None:
        """Until the next `wake`, or one since the last return."""
        with self._lock:
            if not self._woken:
                self._came.wait(timeout_s)
            self._woken = False
