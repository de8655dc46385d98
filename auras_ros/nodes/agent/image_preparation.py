"""Images are prepared when they arrive, not when a frame latches them, to save time in the frame's thread.

Slow preparation runs in a thread of its own, so that the executor's can go on taking messages. Only the newest image of
each camera waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.latest_worker import LatestWorker
from auras_ros.observation import Picture

QUICK_NS = 1_000_000  # faster preparation is done at once: waking another thread takes a tenth of this


class ImagePreparation:
    """done(camera) is called when an image is prepared, in the thread that did it; it is not called for an image that a
    newer one has replaced. Everything else is called in the executor's thread."""

    def __init__(self, done: Callable[[str], None], failed: Callable[[Picture, Exception], None]) -> None:
        """failed(picture, error) is called instead of `done` if the preparation raises in its own thread."""
        self._done = done
        self._monotonic = MonotonicClock()
        self.lasts_ns = QUICK_NS  # duration of the newest preparation; the first one is not assumed to be fast
        self._worker = LatestWorker("images", self._prepare, failed)
        self.close = self._worker.close

    def prepare(self, camera: str, picture: Picture) -> None:
        (self._prepare if self.lasts_ns < QUICK_NS else self._worker.put)(camera, picture)

    def _prepare(self, camera: str, picture: Picture) -> None:
        began_ns = self._monotonic.now_ns()
        picture.image()
        self.lasts_ns = self._monotonic.now_ns() - began_ns
        self._done(camera)
