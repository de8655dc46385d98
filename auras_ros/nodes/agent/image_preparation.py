"""Images are prepared when they arrive, not when a frame latches them, to save time in the frame's thread.

Slow preparation runs in a thread of its own, so that the executor's can go on taking messages. Only the newest image of
each camera waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from auras_ros.clock import MonotonicClock
from auras_ros.observation import Picture

QUICK_NS = 1_000_000  # faster preparation is done at once: waking another thread takes a tenth of this


class ImagePreparation:
    """done(camera) is called when an image is prepared, in the thread that did it; it is not called for an image that a
    newer one has replaced. Everything else is called in the executor's thread."""

    def __init__(self, done: Callable[[str], None]) -> None:
        self._done = done
        self._monotonic = MonotonicClock()
        self.lasts_ns = QUICK_NS  # duration of the newest preparation; the first one is not assumed to be fast
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
