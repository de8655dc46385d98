"""A result that comes later, as rclpy.task.Future; done-callbacks run in the thread that sets the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Future:
    """Holds a result or an exception once one is set; cancelling a finished future does nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = self._cancelled = False
        self._result: Any = None
        self._exception: BaseException | None = None
        self._callbacks: list[Callable[[Future], object]] = []

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def result(self) -> Any:
        """The result, or None while there is none; raises the exception if one was set instead."""
        if self._exception is not None:
            raise self._exception
        return self._result

    def exception(self) -> BaseException | None:
        return self._exception

    def set_result(self, result: Any) -> None:
        self._finish(result=result)

    def set_exception(self, exception: BaseException) -> None:
        self._finish(exception=exception)

    def cancel(self) -> None:
        self._finish(cancelled=True)

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Call callback(self) when done; at once if it is done already."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def _finish(self, result: Any = None, exception: BaseException | None = None, cancelled: bool = False) -> None:
        with self._lock:
            if self._done:
                return
            self._result, self._exception, self._cancelled = result, exception, cancelled
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
