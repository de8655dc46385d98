"""An executor that runs live for a block, until something has happened or the time is over."""

from __future__ import annotations

import threading
import time

from auras_ros.pipeline.live import Live

END_S = 600.0  # how long to wait for the frames that are running when the block ends
POLL_S = 0.5


class Running(Live):
    """A warm executor goes on where it is; `executor.reset()` before empties it."""

    def __enter__(self) -> Running:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.halt(END_S)

    def wait(self, done: threading.Event, seconds: float) -> bool:
        """Whether `done` was set in this time. Raises RuntimeError if a worker fails meanwhile."""
        end_s = time.monotonic() + seconds
        while not done.is_set() and (left_s := end_s - time.monotonic()) > 0:
            done.wait(min(left_s, POLL_S))
            if not self.working():
                raise RuntimeError(f"{self.executor.plan}: a worker failed; its error is above")
        return done.is_set()
