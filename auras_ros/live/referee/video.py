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
    """Writes RGB frames of one size. The file is complete after `close`; without a frame there is none."""

    def __init__(self, path: Path, rate_hz: float, width: int, height: int) -> None:
        """Raises VideoError: better before the run than within it."""
        self.path, self.frames = path, 0
        self._shape = (height, width, 3)
        self._writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*CODEC), rate_hz, (width, height))
        if not self._writer.isOpened():
            why = f"the folder is not writable, or cv2 has no {CODEC} encoder"
            raise VideoError(f"cannot write {path}: {why}; --no-video goes without")

    def write(self, frame: NDArray[np.uint8]) -> None:
        """frame: uint8 RGB [height, width, 3]. Raises ValueError for another size."""
        if frame.shape != self._shape:
            raise ValueError(f"video frame: expected shape {self._shape}, got {frame.shape}")
        self._writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
        self.frames += 1

    def close(self) -> None:
        self._writer.release()
        if not self.frames:
            self.path.unlink(missing_ok=True)
