"""Turns what the referee hears of a world into the frames of a video: pairs pictures with statuses, remembers chunks.

One frame a control step, so that the video runs at the speed of the world; a picture that was lost on the way is
replaced by the frame before. It knows no ROS and decides nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from auras_ros.live.referee.episode import WorldStatus
from auras_ros.live.referee.pictures import FilmFrame, Image, draw
from auras_ros.live.referee.view import View

KEPT = 24  # newest chunks and pictures
T = TypeVar("T")


class FrameSink(Protocol):
    """Where frames go, uint8 RGB [height, width, 3]."""

    def write(self, frame: Image) -> None: ...


class Film:
    """`chunk`, `action`, `actuator` as they come; `picture` of each of the view's cameras and `status` for each control
    step, in any order."""

    def __init__(self, frames: FrameSink, view: View, title: str, step_ms: float) -> None:
        """title: as it is shown, may change. step_ms: of a control step."""
        self.lengths: dict[int, int] = {}  # of each seed's episode, in frames
        self.title, self.cameras = title, view.cameras
        self.answers: tuple[tuple[str, str], ...] = ()  # newest, of a vision-language model: questions and answers
        self._frames, self._view, self._step_ns = frames, view, round(step_ms * 1e6)
        self._chunks: OrderedDict[int, NDArray[np.float64]] = OrderedDict()
        self._seen: OrderedDict[int, Image] = OrderedDict()  # by the first camera, by the host's monotonic clock
        self._state, self._source = "unknown", "none"
        self._index: int | None = None
        self._request: int | None = None
        self._age_ns: int | None = None
        self._origin_ns: int | None = None
        self._pictures: dict[str, OrderedDict[int, Image]] = {name: OrderedDict() for name in view.cameras}  # by stamp
        self._waiting: tuple[WorldStatus, int, int] | None = None
        self._frame: Image | None = None

    def chunk(self, request: int, actions: NDArray[np.float64]) -> None:
        """actions: [horizon, channels]."""
        _keep(self._chunks, request, actions)

    def action(
        self, state: str, source: str, index: int | None, age_ns: int | None, request: int | None, mono_ns: int
    ) -> None:
        """The label of the newest action."""
        self._state, self._source, self._index, self._age_ns, self._request = state, source, index, age_ns, request
        self._origin_ns = None if age_ns is None else mono_ns - age_ns

    def actuator(self, state: str) -> None:
        """The actuator's state: it says so where no action does."""
        self._state = state
        if state not in ("armed", "holding"):
            self._source, self._index, self._age_ns, self._request, self._origin_ns = "none", None, None, None, None

    def picture(self, camera: str, stamp_ns: int, image: Image) -> None:
        """What a camera of the view saw, uint8 RGB; it is copied, because messages own their memory."""
        _keep(self._pictures[camera], stamp_ns, image.copy())
        self._shoot()

    def status(self, status: WorldStatus, played: int, successes: int) -> None:
        """A control step to be filmed; `played` and `successes` include the episode if it is done."""
        self.cut()
        self._waiting = (status, played, successes)
        self._shoot()

    def cut(self) -> None:
        """What is still waited for does not come any more: the filming pauses, or the picture of a step was lost."""
        if self._waiting is None:
            return
        status, _, _ = self._waiting
        self._waiting = None
        if self._frame is not None:
            self._write(self._frame, status.seed, 1)

    def _write(self, frame: Image, seed: int, copies: int) -> None:
        for _ in range(copies):
            self._frames.write(frame)
        self.lengths[seed] = self.lengths.get(seed, 0) + copies

    def _shoot(self) -> None:
        """Draw a frame once the pictures and the status of one step are there."""
        if self._waiting is None:
            return
        status, played, successes = self._waiting
        images = [kept[status.stamp_ns] for kept in self._pictures.values() if status.stamp_ns in kept]
        if len(images) < len(self.cameras):
            return
        self._waiting = None
        _keep(self._seen, status.mono_ns, images[0])
        self._frame = draw(self._scene(status, played, successes, images))
        second = round(1e9 / self._step_ns)  # so long a finished world is shown
        self._write(self._frame, status.seed, second if status.done else 1)

    def _scene(self, status: WorldStatus, played: int, successes: int, images: Sequence[Image]) -> FilmFrame:
        chunk = None if self._request is None else self._chunks.get(self._request)
        rest = None if chunk is None or self._index is None else chunk[self._index + 1 :]
        verdict = ("success" if status.success else f"no success in {status.step} steps") if status.done else ""
        return FilmFrame(
            picture=self._view.picture(images, status.action, rest),
            seed=status.seed,
            step=status.step,
            goals=self._view.goals(status.sub_goals),
            state=self._state,
            source=self._source,
            age_ms=None if self._age_ns is None else self._age_ns / 1e6,
            seen=nearest(self._seen, self._origin_ns, self._step_ns / 2),
            request=self._request,
            successes=successes,
            played=played,
            title=self.title,
            verdict=verdict,
            answers=self.answers,
        )


def _keep(kept: OrderedDict[int, T], key: int, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > KEPT:
        kept.popitem(last=False)


def nearest(seen: Mapping[int, T], at_ns: int | None, within_ns: float) -> T | None:
    """What was seen at this time, or so long before or after it."""
    if at_ns is None or not seen:
        return None
    found = min(seen, key=lambda ns: abs(ns - at_ns))
    return seen[found] if abs(found - at_ns) <= within_ns else None
