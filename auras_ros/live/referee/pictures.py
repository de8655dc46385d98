"""Draws one frame of the demo's video: the table, the actions on it, and below it which image they answer.

A pure function of a scene: no ROS, no files. Table coordinates are pixels of the Push-T table (0 to 512).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from auras_ros.live.referee.measures import FRESH

TABLE_PX = 512  # side of the table in the picture; the same as its coordinates, so that they need no scaling
TITLE_PX, PANEL_PX, SEEN_PX = 40, 168, 144
WIDTH_PX, HEIGHT_PX = TABLE_PX, TITLE_PX + TABLE_PX + PANEL_PX
OLDEST_MS = 1000.0  # the length of the bar of ages

Colour = tuple[int, int, int]
INK: Colour = (32, 36, 44)
FAINT: Colour = (120, 126, 138)
PAPER: Colour = (247, 248, 250)
LINE: Colour = (214, 218, 226)
PLAN: Colour = (226, 88, 34)
CROSS: Colour = (200, 16, 46)
GOOD: Colour = (22, 140, 70)
WARN: Colour = (206, 120, 0)
STATE_COLOURS = {"armed": GOOD, "holding": WARN}


@dataclass(frozen=True, eq=False)
class FilmFrame:
    """What a frame shows. Absent values are None.

    table: uint8 RGB, square, of any size. rest: [n, 2] the actions still to come of the active chunk, in order.
    action: the active target, px. age_ms: how old the observation is that it answers; seen: the table as it was then.
    verdict: a word over the table at an episode's end. title: how it is played. answers: questions to a vision-language
    model with its newest answers, written over the table.
    """

    table: NDArray[np.uint8]
    seed: int
    step: int
    coverage: float
    threshold: float
    state: str
    source: str
    age_ms: float | None = None
    seen: NDArray[np.uint8] | None = None
    request: int | None = None
    action: tuple[float, float] | None = None
    rest: NDArray[np.float64] | None = None
    successes: int = 0
    played: int = 0
    title: str = ""
    verdict: str = ""
    answers: tuple[tuple[str, str], ...] = ()


def draw(scene: FilmFrame) -> NDArray[np.uint8]:
    """The frame, uint8 RGB [HEIGHT_PX, WIDTH_PX, 3]: title, table, panel."""
    canvas = np.full((HEIGHT_PX, WIDTH_PX, 3), PAPER, dtype=np.uint8)
    _text(canvas, scene.title, (14, 27), 0.55, INK)
    canvas[TITLE_PX : TITLE_PX + TABLE_PX] = _table(scene)
    _panel(canvas[TITLE_PX + TABLE_PX :], scene)
    return canvas


def _table(scene: FilmFrame) -> NDArray[np.uint8]:
    """The camera's picture with the actions drawn in, [TABLE_PX, TABLE_PX, 3]."""
    table = _scaled(scene.table, TABLE_PX)
    if scene.rest is not None and len(scene.rest):
        _draw_rest(table, scene.rest)
    if scene.action is not None:
        _draw_cross(table, _pixel(scene.action))
    for line, (question, answer) in enumerate(scene.answers):
        at = TABLE_PX - 12 - 20 * (len(scene.answers) - 1 - line)
        for ink, thickness in ((PAPER, 4), (INK, 1)):
            _text(table, f"{question} {answer}", (14, at), 0.5, ink, thickness)
    if scene.verdict:
        colour = GOOD if scene.verdict == "success" else INK
        cv2.rectangle(table, (0, 0), (TABLE_PX, 44), colour, -1)
        _text(table, scene.verdict, (16, 31), 0.9, PAPER, 2)
    return table


def _scaled(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    scaled = np.zeros((side, side, 3), dtype=np.uint8)
    cv2.resize(image, (side, side), dst=scaled, interpolation=cv2.INTER_AREA)
    return scaled


def _draw_rest(table: NDArray[np.uint8], rest: NDArray[np.float64]) -> None:
    """The actions to come: a thread of dots that fades towards the horizon. Drawn from the far end, near on top."""
    points = [_pixel((float(x), float(y))) for x, y in rest]
    for i in reversed(range(len(points))):
        _draw_dot(table, points[max(0, i - 1)], points[i], 1.0 - 0.85 * i / max(1, len(points) - 1))


def _draw_dot(table: NDArray[np.uint8], before: tuple[int, int], at: tuple[int, int], strength: float) -> None:
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


def _draw_cross(table: NDArray[np.uint8], at: tuple[int, int]) -> None:
    x, y = at
    for colour, thickness in (((255, 255, 255), 6), (CROSS, 2)):
        cv2.line(table, (x - 11, y - 11), (x + 11, y + 11), colour, thickness, cv2.LINE_AA)
        cv2.line(table, (x - 11, y + 11), (x + 11, y - 11), colour, thickness, cv2.LINE_AA)


def _panel(panel: NDArray[np.uint8], scene: FilmFrame) -> None:
    """On the left the image that the action answers, on the right how old it is and how the episode stands."""
    top, left, right = 12, SEEN_PX + 28, WIDTH_PX - 14
    if scene.seen is not None:
        panel[top : top + SEEN_PX, 12 : 12 + SEEN_PX] = _scaled(scene.seen, SEEN_PX)
    cv2.rectangle(panel, (11, top - 1), (12 + SEEN_PX, top + SEEN_PX), LINE, 1)
    age = "-" if scene.age_ms is None else f"{scene.age_ms:.0f} ms ago"
    _text(panel, "<- this action answers the image of", (left, 24), 0.45, FAINT)
    _text(panel, age, (left, 52), 0.8, INK, 2)
    _bar(panel, 60, (scene.age_ms or 0.0) / OLDEST_MS, PLAN, (left, right))
    good = scene.coverage > scene.threshold
    _text(panel, f"goal covered  {scene.coverage:.0%}", (left, 92), 0.45, FAINT)
    _bar(panel, 98, scene.coverage, GOOD if good else PLAN, (left, right), scene.threshold)
    _text(panel, scene.state, (left, 130), 0.45, STATE_COLOURS.get(scene.state, FAINT))
    source = scene.source if scene.request is None else f"{scene.source} {scene.request}"
    fresh = scene.source in FRESH
    _text(panel, f"action from {source}", (left + 90, 130), 0.45, INK if fresh else WARN)
    where = f"seed {scene.seed}, step {scene.step}, {scene.successes} of {scene.played} succeeded"
    _text(panel, where, (left, 152), 0.45, FAINT)


def _bar(
    panel: NDArray[np.uint8], top: int, share: float, colour: Colour, ends: tuple[int, int], mark: float | None = None
) -> None:
    """A bar 12 px high that is filled to a share of its length; mark: where success begins."""
    left, right = ends
    cv2.rectangle(panel, (left, top), (right, top + 12), LINE, -1)
    cv2.rectangle(panel, (left, top), (left + round((right - left) * min(1.0, max(0.0, share))), top + 12), colour, -1)
    if mark is not None:
        at = left + round((right - left) * mark)
        cv2.line(panel, (at, top - 3), (at, top + 15), INK, 2)


def _pixel(point: tuple[float, float]) -> tuple[int, int]:
    """Nearest pixel; far outside is brought near, because cv2 takes 16-bit coordinates."""
    x, y = np.clip(point, -TABLE_PX, 2 * WIDTH_PX)
    return round(float(x)), round(float(y))


def _text(
    canvas: NDArray[np.uint8], text: str, at: tuple[int, int], size: float, colour: Colour, thickness: int = 1
) -> None:
    cv2.putText(canvas, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, colour, thickness, cv2.LINE_AA)
