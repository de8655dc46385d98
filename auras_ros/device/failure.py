"""Exceptions of stages: each is kept until a caller waits for the stage's mark.

Nothing is swallowed: a failure that nobody waited for is raised when the device closes. It never stops a lane.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import NamedTuple, NoReturn

from auras_ros.device.lane import DeviceError

KEPT = 16  # an exception keeps its stack frames alive: if a stage fails for hours, the first few are enough


class Failure(NamedTuple):
    """The exception of a stage, or of an earlier stage that it had to wait for."""

    stage: str
    error: BaseException
    traceback: TracebackType | None  # as the stage left it, because every raise extends the exception's own


class StageFailures:
    """The failures of one device that no caller has seen yet, oldest first; beyond `KEPT` they are only counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unseen: list[Failure] = []
        self._more = 0

    def note(self, stage: str, error: BaseException) -> Failure:
        """Called by a lane in the thread that caught `error`."""
        failure = Failure(stage, error, error.__traceback__)
        with self._lock:
            if len(self._unseen) < KEPT:
                self._unseen.append(failure)
            else:
                self._more += 1
        return failure

    def raise_again(self, failure: Failure) -> NoReturn:
        """Raise `failure` for a caller that waits. Once raised, later launches that failed for the same reason count as
        seen."""
        with self._lock:
            self._unseen = [kept for kept in self._unseen if kept.error is not failure.error]
        raise failure.error.with_traceback(failure.traceback)

    def raise_unseen(self) -> None:
        """Raises DeviceError, caused by the first failure that nobody waited for, if there is one."""
        with self._lock:
            unseen, more = self._unseen, self._more
            self._unseen, self._more = [], 0
        if not unseen and not more:
            return
        stages = ", ".join(dict.fromkeys(repr(failure.stage) for failure in unseen))
        others = f"{more} more" if more else ""
        what = " and ".join(filter(None, (stages, others)))
        raise DeviceError(f"nobody waited for failed stages: {what}") from (unseen[0].error if unseen else None)
