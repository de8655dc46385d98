"""rclpy.task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy_recording import changed, strict


@strict
class Future:
    def __init__(self, *, executor: Any = None) -> None:
        self._state, self._result, self._error = "pending", None, None
        self._callbacks: list[Callable[[Future], None]] = []

    def done(self) -> bool:
        return self._state == "done"

    def cancelled(self) -> bool:
        return self._state == "cancelled"

    def cancel(self) -> None:
        self._finish("cancelled")

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        return self._error

    def set_result(self, result: Any) -> None:
        self._result = result
        self._finish("done")

    def set_exception(self, exception: BaseException) -> None:
        self._error = exception  # type: ignore[assignment]
        self._finish("done")

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        if self._state == "pending":
            self._callbacks.append(callback)
        else:
            callback(self)

    def _finish(self, state: str) -> None:
        with changed:
            self._state = state
            changed.notify_all()
        for callback in self._callbacks:
            callback(self)
