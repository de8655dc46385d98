"""A video file, frame by frame. It knows nothing of what the frames show."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

CODEC = "mp4v"


class VideoError(OSError):
    """The file cannot be written; the text names it."""


class VideoFile:
    """Writes RGB frames of one size. The file is opened with the first, and complete after `close`."""

    def __init__(self, path: Path, rate_hz: float) -> None:
        self.path, self.frames = path, 0
        self._rate_hz = rate_hz
        self._shape: tuple[int, ...] = ()
        self._writer: cv2.VideoWriter | None = None

    def write(self, frame: NDArray[np.uint8]) -> None:
        """frame: uint8 RGB [height, width, 3]. Raises VideoError, or ValueError for another size."""
        if self._writer is None:
            self._writer, self._shape = self._open(frame), frame.shape
        if frame.shape != self._shape:
            raise ValueError(f"video frame: expected shape {self._shape}, got {frame.shape}")
        self._writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
        self.frames += 1

    def _open(self, frame: NDArray[np.uint8]) -> cv2.VideoWriter:
        height, width = frame.shape[:2]
        fourcc = cv2.VideoWriter.fourcc(*CODEC)
        writer = cv2.VideoWriter(str(self.path), fourcc, self._rate_hz, (width, height))
        if not writer.isOpened():
            raise VideoError(f"cannot write {self.path}: the folder is not writable, or cv2 has no {CODEC} encoder")
        return writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.release()
