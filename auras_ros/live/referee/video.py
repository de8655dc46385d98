"""A video file, frame by frame. It knows nothing of what the frames show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def side_by_side(videos: Sequence[tuple[Path, Mapping[int, int]]], path: Path, still: Path) -> bool:
    """Write videos of the same size and rate next to each other, and a frame of it as PNG. False, and no files, if
    they have no episode in common. Raises VideoError.

    With each video come its episodes in order: seed -> frames. An episode of all videos begins at the same time; where
    it has ended the last frame stays.
    """
    seeds = sorted(set.intersection(*(set(lengths) for _, lengths in videos)))
    if not seeds:
        return False
    captures = [cv2.VideoCapture(str(file)) for file, _ in videos]
    rate_hz, height = captures[0].get(cv2.CAP_PROP_FPS), round(captures[0].get(cv2.CAP_PROP_FRAME_HEIGHT))
    width = sum(round(capture.get(cv2.CAP_PROP_FRAME_WIDTH)) for capture in captures)
    writer = VideoFile(path, rate_hz, width, height)
    readers = [_episodes(file, capture, lengths) for capture, (file, lengths) in zip(captures, videos, strict=True)]
    for seed in seeds:
        playing = [next(frames for at, frames in reader if at == seed) for reader in readers]
        shown = [next(frames) for frames in playing]
        length = max(lengths[seed] for _, lengths in videos)
        for i in range(length):
            frame = np.hstack(shown)
            writer.write(frame)
            shot = seed == seeds[0] and i == min(lengths[seed] for _, lengths in videos) // 2
            if shot and not cv2.imwrite(str(still), cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)):
                raise VideoError(f"cannot write {still}")
            shown = [next(frames, last) for frames, last in zip(playing, shown, strict=True)]
    writer.close()
    for capture in captures:
        capture.release()
    return True


def _episodes(
    file: Path, capture: cv2.VideoCapture, lengths: Mapping[int, int]
) -> Iterator[tuple[int, Iterator[NDArray[np.uint8]]]]:
    """(seed, its frames), in order; frames that nobody takes are skipped."""
    for seed, length in lengths.items():
        frames = _frames(file, capture, length)
        yield seed, frames
        for _ in frames:
            pass


def _frames(file: Path, capture: cv2.VideoCapture, length: int) -> Iterator[NDArray[np.uint8]]:
    for _ in range(length):
        found, frame = capture.read()
        if not found:
            raise VideoError(f"cannot read {file}: it is shorter than what was filmed")
        yield np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)
