"""A camera image and its preprocessed form, computed once, in the first thread that needs it.

Preprocessing takes up to ten milliseconds. The receiver may start it early; a latch that comes earlier waits for the
rest of it, or does it all. The result is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .images import ImageArray
from .preprocess import Float32Array


class Picture:
    """`frame` must not change any more. Thread-safe."""

    def __init__(self, frame: ImageArray, prepare: Callable[[ImageArray], Float32Array]) -> None:
        self._frame: ImageArray | None = frame
        self._prepare = prepare
        self._lock = threading.Lock()
        self._image: Float32Array | None = None

    def image(self) -> Float32Array:
        """float32 [channels, h, w]; releases the raw image."""
        with self._lock:
            if self._image is None:
                assert self._frame is not None
                self._image, self._frame = self._prepare(self._frame), None
            return self._image
