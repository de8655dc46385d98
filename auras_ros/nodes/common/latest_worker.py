"""A thread that handles the newest of what comes, so that whoever hands it over never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LatestWorker(Generic[T]):
    """Calls `handle(key, value)` in a thread of its own, and `failed(value, error)` there if that raises. Of each key
    only the newest value waits; an earlier one that is not begun yet is forgotten. `put`: any thread."""

    def __init__(self, name: str, handle: Callable[[str, T], None], failed: Callable[[T, Exception], None]) -> None:
        self._handle, self._failed = handle, failed
        self._waiting: dict[str, T] = {}
        self._news = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def put(self, key: str, value: T) -> None:
        with self._news:
            self._waiting[key] = value
            self._news.notify()

    def close(self) -> None:
        """Returns when the thread has ended, after what it handles now; what still waits is forgotten."""
        with self._news:
            self._open = False
            self._news.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or not self._open)
                if not self._open:
                    return
                key = next(iter(self._waiting))
                value = self._waiting.pop(key)
            try:
                self._handle(key, value)
            except Exception as error:  # noqa: BLE001  (the next value is handled all the same)
                self._failed(value, error)
