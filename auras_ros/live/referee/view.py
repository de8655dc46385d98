"""What a film shows of a world: which cameras it takes, how their pictures become one, which sub-goals have a bar.

Every world has a view of its cameras' pictures, enlarged. A world that can be shown better has a view of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from auras_ros.live.referee.pictures import LINE, PICTURE_PX, GoalBar, Image, fitted

INSET_PX, INSETS = 150, 3


class View(Protocol):
    """cameras: names in camera/<name>/image_raw; a frame is drawn once each has shown the step."""

    @property
    def cameras(self) -> tuple[str, ...]: ...

    def picture(
        self, images: Sequence[Image], action: Sequence[float] | None, rest: NDArray[np.float64] | None
    ) -> Image:
        """[PICTURE_PX, PICTURE_PX, 3]. images: one of each camera. action: the one that was taken. rest: [n, channels],
        those still to come of the active chunk, in order."""

    def goals(self, sub_goals: Mapping[str, float]) -> tuple[GoalBar, ...]:
        """A bar for each."""


class CamerasView:
    """The first camera's picture; those of up to three others are small, in its lower right corner."""

    def __init__(self, cameras: Sequence[str]) -> None:
        self.cameras = tuple(cameras[: 1 + INSETS])

    def picture(
        self, images: Sequence[Image], action: Sequence[float] | None, rest: NDArray[np.float64] | None
    ) -> Image:
        first, *others = images
        picture = fitted(first, PICTURE_PX)
        for number, image in enumerate(others):
            right, bottom = PICTURE_PX - 8, PICTURE_PX - 8 - number * (INSET_PX + 4)
            picture[bottom - INSET_PX : bottom, right - INSET_PX : right] = fitted(image, INSET_PX)
            cv2.rectangle(picture, (right - INSET_PX - 1, bottom - INSET_PX - 1), (right, bottom), LINE, 1)
        return picture

    def goals(self, sub_goals: Mapping[str, float]) -> tuple[GoalBar, ...]:
        return tuple(GoalBar(name.replace("_", " "), share) for name, share in sub_goals.items())
