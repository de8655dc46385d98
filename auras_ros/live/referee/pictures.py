"""Draws one frame of the demo's video: what a view shows of the world, and below it which image the action answers.

A pure function of a scene: no ROS, no files, no world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from auras_ros.live.referee.measures import FRESH

PICTURE_PX = 512  # side of the world's picture
TITLE_PX, PANEL_PX, SEEN_PX = 40, 168, 144
WIDTH_PX, HEIGHT_PX = PICTURE_PX, TITLE_PX + PICTURE_PX + PANEL_PX
OLDEST_MS = 1000.0  # the length of the bar of ages
COLUMN_GAP_PX = 12

Image = NDArray[np.uint8]  # RGB [height, width, 3]
Colour = tuple[int, int, int]
INK: Colour = (32, 36, 44)
FAINT: Colour = (120, 126, 138)
PAPER: Colour = (247, 248, 250)
LINE: Colour = (214, 218, 226)
PLAN: Colour = (226, 88, 34)
GOOD: Colour = (22, 140, 70)
WARN: Colour = (206, 120, 0)
STATE_COLOURS = {"armed": GOOD, "holding": WARN}


@dataclass(frozen=True)
class GoalBar:
    """How far a part of the task is reached, 0 to 1. threshold: beyond it, it is a success; None: when it is whole."""

    label: str
    share: float
    threshold: float | None = None

    @property
    def reached(self) -> bool:
        return self.share >= 1.0 if self.threshold is None else self.share > self.threshold


@dataclass(frozen=True, eq=False)
class FilmFrame:
    """What a frame shows. Absent values are None.

    picture: of the world, [PICTURE_PX, PICTURE_PX, 3], as its view draws it. goals: next to each other. age_ms: how old
    the observation is that the active action answers; seen: what the first camera saw then. verdict: a word over the
    picture at an episode's end. title: how it is played. answers: questions to a vision-language model with its newest
    answers, written over the picture.
    """

    picture: Image
    seed: int
    step: int
    state: str
    source: str
    goals: tuple[GoalBar, ...] = ()
    age_ms: float | None = None
    seen: Image | None = None
    request: int | None = None
    successes: int = 0
    played: int = 0
    title: str = ""
    verdict: str = ""
    answers: tuple[tuple[str, str], ...] = ()


def draw(scene: FilmFrame) -> Image:
    """The frame, uint8 RGB [HEIGHT_PX, WIDTH_PX, 3]: title, picture, panel."""
    canvas = np.full((HEIGHT_PX, WIDTH_PX, 3), PAPER, dtype=np.uint8)
    _text(canvas, scene.title, (14, 27), 0.55, INK)
    shown = canvas[TITLE_PX : TITLE_PX + PICTURE_PX]
    shown[:] = scene.picture
    _words(shown, scene)
    _panel(canvas[TITLE_PX + PICTURE_PX :], scene)
    return canvas


def _words(picture: Image, scene: FilmFrame) -> None:
    for line, (question, answer) in enumerate(scene.answers):
        at = PICTURE_PX - 12 - 20 * (len(scene.answers) - 1 - line)
        for ink, thickness in ((PAPER, 4), (INK, 1)):
            _text(picture, f"{question} {answer}", (14, at), 0.5, ink, thickness)
    if scene.verdict:
        colour = GOOD if scene.verdict == "success" else INK
        cv2.rectangle(picture, (0, 0), (PICTURE_PX, 44), colour, -1)
        _text(picture, scene.verdict, (16, 31), 0.9, PAPER, 2)


def fitted(image: Image, side: int) -> Image:
    """The whole picture in the middle of a square, [side, side, 3]; what it does not cover is black."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    square = np.zeros((side, side, 3), dtype=np.uint8)
    left, top = (side - size[0]) // 2, (side - size[1]) // 2
    how = cv2.INTER_AREA if scale < 1.0 else cv2.INTER_LINEAR
    square[top : top + size[1], left : left + size[0]] = cv2.resize(image, size, interpolation=how)
    return square


def _panel(panel: Image, scene: FilmFrame) -> None:
    """On the left the image that the action answers, on the right how old it is and how the episode stands."""
    top, left, right = 12, SEEN_PX + 28, WIDTH_PX - 14
    if scene.seen is not None:
        panel[top : top + SEEN_PX, 12 : 12 + SEEN_PX] = fitted(scene.seen, SEEN_PX)
    cv2.rectangle(panel, (11, top - 1), (12 + SEEN_PX, top + SEEN_PX), LINE, 1)
    age = "-" if scene.age_ms is None else f"{scene.age_ms:.0f} ms ago"
    _text(panel, "<- this action answers the image of", (left, 24), 0.45, FAINT)
    _text(panel, age, (left, 52), 0.8, INK, 2)
    _bar(panel, 60, (scene.age_ms or 0.0) / OLDEST_MS, PLAN, (left, right))
    _goals(panel, scene.goals, (left, right))
    _text(panel, scene.state, (left, 130), 0.45, STATE_COLOURS.get(scene.state, FAINT))
    source = scene.source if scene.request is None else f"{scene.source} {scene.request}"
    fresh = scene.source in FRESH
    _text(panel, f"action from {source}", (left + 90, 130), 0.45, INK if fresh else WARN)
    where = f"seed {scene.seed}, step {scene.step}, {scene.successes} of {scene.played} succeeded"
    _text(panel, where, (left, 152), 0.45, FAINT)


def _goals(panel: Image, goals: Sequence[GoalBar], ends: tuple[int, int]) -> None:
    """A bar for each, next to each other, with its name above it."""
    left, right = ends
    width = (right - left + COLUMN_GAP_PX) / max(1, len(goals))
    for number, goal in enumerate(goals):
        start = left + round(number * width)
        end = left + round((number + 1) * width) - COLUMN_GAP_PX
        label = f"{goal.label}  {goal.share:.0%}"
        (needed, _), _ = cv2.getTextSize(label, cv2.FONT_HERSHEY_SIMPLEX, 0.45, 1)
        _text(panel, label, (start, 92), 0.45 * min(1.0, (end - start) / needed), FAINT)
        _bar(panel, 98, goal.share, GOOD if goal.reached else PLAN, (start, end), goal.threshold)


def _bar(
    panel: Image, top: int, share: float, colour: Colour, ends: tuple[int, int], mark: float | None = None
) -> None:
    """A bar 12 px high that is filled to a share of its length; mark: where success begins."""
    left, right = ends
    cv2.rectangle(panel, (left, top), (right, top + 12), LINE, -1)
    cv2.rectangle(panel, (left, top), (left + round((right - left) * min(1.0, max(0.0, share))), top + 12), colour, -1)
    if mark is not None:
        at = left + round((right - left) * mark)
        cv2.line(panel, (at, top - 3), (at, top + 15), INK, 2)


def _text(canvas: Image, text: str, at: tuple[int, int], size: float, colour: Colour, thickness: int = 1) -> None:
    cv2.putText(canvas, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, colour, thickness, cv2.LINE_AA)
