"""Push-T's view: the table from above as its viewer's camera shows it, larger than policies see it, and the actions on
it. An action is a place on the table, px (0 to 512): the size of the picture, so that it needs no scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from auras_ros.live.referee.answers import COVERED
from auras_ros.live.referee.pictures import PICTURE_PX, PLAN, Colour, GoalBar, Image, fitted

VIEWER = "viewer"
CROSS: Colour = (200, 16, 46)


class PushTView:
    """threshold: the coverage beyond which a table is a success."""

    cameras = (VIEWER,)

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def picture(
        self, images: Sequence[Image], action: Sequence[float] | None, rest: NDArray[np.float64] | None
    ) -> Image:
        """The target is a cross, what comes after it a line of dots."""
        table = fitted(images[0], PICTURE_PX)
        if rest is not None and len(rest):
            _draw_rest(table, rest)
        if action is not None:
            _draw_cross(table, _pixel(action))
        return table

    def goals(self, sub_goals: Mapping[str, float]) -> tuple[GoalBar, ...]:
        return (GoalBar("goal covered", sub_goals[COVERED], self._threshold),)


def _draw_rest(table: Image, rest: NDArray[np.float64]) -> None:
    """The actions to come: a thread of dots that fades towards the horizon. Drawn from the far end, near on top."""
    points = [_pixel(each) for each in rest.tolist()]
    for i in reversed(range(len(points))):
        _draw_dot(table, points[max(0, i - 1)], points[i], 1.0 - 0.85 * i / max(1, len(points) - 1))


def _draw_dot(table: Image, before: tuple[int, int], at: tuple[int, int], strength: float) -> None:
    """A dot and the line that leads to it, `strength` (0 to 1) opaque. Works on the part of the picture they need."""
    (left, top), (right, bottom) = np.min([before, at], axis=0) - 8, np.max([before, at], axis=0) + 8
    left, top = max(0, left), max(0, top)
    part = table[top : max(0, bottom), left : max(0, right)]
    if part.size == 0:
        return
    layer = part.copy()
    start, end = (before[0] - left, before[1] - top), (at[0] - left, at[1] - top)
    cv2.line(layer, start, end, PLAN, 2, cv2.LINE_AA)
    cv2.circle(layer, end, 5, PLAN, -1, cv2.LINE_AA)
    part[:] = cv2.addWeighted(layer, strength, part, 1.0 - strength, 0.0)


def _draw_cross(table: Image, at: tuple[int, int]) -> None:
    x, y = at
    for colour, thickness in (((255, 255, 255), 6), (CROSS, 2)):
        cv2.line(table, (x - 11, y - 11), (x + 11, y + 11), colour, thickness, cv2.LINE_AA)
        cv2.line(table, (x - 11, y + 11), (x + 11, y - 11), colour, thickness, cv2.LINE_AA)


def _pixel(place: Sequence[float]) -> tuple[int, int]:
    """Nearest pixel; far outside is brought near, because cv2 takes 16-bit coordinates."""
    x, y = np.clip(place[:2], -PICTURE_PX, 2 * PICTURE_PX)
    return round(float(x)), round(float(y))
