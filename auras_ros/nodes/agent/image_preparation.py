"""Pictures are prepared when they come and not when a frame latches them: the frame's thread has other work.

What takes long is done in a thread of its own, so that the executor's goes on taking messages. Of each camera only the
newest picture waits for its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from auras_ros.clock import MonotonicClock
from auras_ros.observation import Picture

QUICK_NS = 1_000_000  # what takes less is done at once: to wake another thread takes a tenth of that


class ImagePreparation:
    """done(camera) is called when a picture is prepared, from whatever thread did it; not at all for one that a newer
    one has replaced. Everything else is the executor's thread's."""

    def __init__(self, done: Callable[[str], None]) -> None:
        self._done = done
        self._monotonic = MonotonicClock()
        self.lasts_ns = QUICK_NS  # how long the newest one took; the first is not known to be quick
        self._waiting: dict[str, Picture] = {}
        self._more = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._loop, name="pictures", daemon=True)
        self._thread.start()

    def prepare(self, camera: str, picture: Picture) -> None:
        if self.lasts_ns < QUICK_NS:
            self._prepare(camera, picture)
            return
        with self._more:
            self._waiting[camera] = picture
            self._more.notify()

    def close(self) -> None:
        """Returns when the thread has ended."""
        with self._more:
            self._open = False
            self._more.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._waiting or not self._open)
                if not self._open:
                    return
                camera = next(iter(self._waiting))
                picture = self._waiting.pop(camera)
            self._prepare(camera, picture)

    def _prepare(self, camera: str, picture: Picture) -> None:
        began_ns = self._monotonic.now_ns()
        picture.image()
        self.lasts_ns = self._monotonic.now_ns() - began_ns
        self._done(camera)
