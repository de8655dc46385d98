"""Draws one frame of the demo's video: the table, the actions on it, and a panel of what was going on.

A pure function of a scene: no ROS, no files. Table coordinates are pixels of the Push-T table (0 to 512).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

TABLE_PX = 512  # side of the table in the picture; the same as its coordinates, so that they need no scaling
PANEL_PX = 288
WIDTH_PX, HEIGHT_PX = TABLE_PX + PANEL_PX, TABLE_PX

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
    action: the active target, px. age_ms: how old the observation is that it answers. verdict: a word over the
    table at an episode's end.
    """

    table: NDArray[np.uint8]
    episode: int
    seed: int
    step: int
    coverage: float
    threshold: float
    state: str
    source: str
    age_ms: float | None = None
    request: int | None = None
    action: tuple[float, float] | None = None
    rest: NDArray[np.float64] | None = None
    successes: int = 0
    played: int = 0
    plan: str = ""
    verdict: str = ""


def draw(scene: FilmFrame) -> NDArray[np.uint8]:
    """The frame, uint8 RGB [HEIGHT_PX, WIDTH_PX, 3]."""
    canvas = np.zeros((HEIGHT_PX, WIDTH_PX, 3), dtype=np.uint8)
    cv2.rectangle(canvas, (TABLE_PX, 0), (WIDTH_PX, HEIGHT_PX), PAPER, -1)
    canvas[:, :TABLE_PX] = _table(scene)
    cv2.line(canvas, (TABLE_PX, 0), (TABLE_PX, HEIGHT_PX - 1), LINE, 1)
    _panel(canvas, scene)
    return canvas


def _table(scene: FilmFrame) -> NDArray[np.uint8]:
    """The camera's picture with the actions drawn in, [TABLE_PX, TABLE_PX, 3]."""
    table = np.zeros((TABLE_PX, TABLE_PX, 3), dtype=np.uint8)
    cv2.resize(scene.table, (TABLE_PX, TABLE_PX), dst=table, interpolation=cv2.INTER_LINEAR)
    if scene.rest is not None and len(scene.rest):
        _draw_rest(table, scene.rest)
    if scene.action is not None:
        _draw_cross(table, _pixel(scene.action))
    if scene.verdict:
        colour = GOOD if scene.verdict == "success" else INK
        cv2.rectangle(table, (0, 0), (TABLE_PX, 44), colour, -1)
        _text(table, scene.verdict, (16, 31), 0.9, PAPER, 2)
    return table


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


def _panel(canvas: NDArray[np.uint8], scene: FilmFrame) -> None:
    left, right = TABLE_PX + 20, WIDTH_PX - 20
    _text(canvas, f"episode {scene.episode}", (left, 40), 0.8, INK, 2)
    _text(canvas, f"seed {scene.seed}, step {scene.step}", (left, 66), 0.5, FAINT)
    _text(canvas, "coverage", (left, 112), 0.5, FAINT)
    _text(canvas, f"{scene.coverage:.0%}", (right - 62, 112), 0.6, INK)
    _bar(canvas, scene, (left, 122), (right, 138))
    rows = [
        ("actuator", scene.state, STATE_COLOURS.get(scene.state, FAINT)),
        ("action from", scene.source, INK if scene.source in ("chunk", "blend", "ensemble") else WARN),
        ("age", "-" if scene.age_ms is None else f"{scene.age_ms:.0f} ms", INK),
        ("chunk", "-" if scene.request is None else str(scene.request), INK),
        ("plan", scene.plan or "-", INK),
        ("succeeded", f"{scene.successes} of {scene.played}", INK),
    ]
    for i, (name, value, colour) in enumerate(rows):
        y = 190 + 32 * i
        _text(canvas, name, (left, y), 0.5, FAINT)
        _text(canvas, value, (left + 118, y), 0.55, colour)
    _legend(canvas, left)


def _bar(canvas: NDArray[np.uint8], scene: FilmFrame, low: tuple[int, int], high: tuple[int, int]) -> None:
    """Coverage as a bar, with a mark where success begins."""
    span = high[0] - low[0]
    cv2.rectangle(canvas, low, high, LINE, -1)
    filled = low[0] + round(span * min(1.0, max(0.0, scene.coverage)))
    cv2.rectangle(canvas, low, (filled, high[1]), GOOD if scene.coverage > scene.threshold else PLAN, -1)
    mark = low[0] + round(span * scene.threshold)
    cv2.line(canvas, (mark, low[1] - 5), (mark, high[1] + 5), INK, 2)


def _legend(canvas: NDArray[np.uint8], left: int) -> None:
    y = HEIGHT_PX - 72
    _draw_cross(canvas, (left + 12, y))
    _text(canvas, "action in force", (left + 40, y + 5), 0.5, FAINT)
    dots = np.array([[left + 4 + 14 * i, y + 38] for i in range(3)], dtype=np.float64)
    _draw_rest(canvas, dots)
    _text(canvas, "rest of the chunk", (left + 52, y + 43), 0.5, FAINT)


def _pixel(point: tuple[float, float]) -> tuple[int, int]:
    """Nearest pixel; far outside is brought near, because cv2 takes 16-bit coordinates."""
    x, y = np.clip(point, -TABLE_PX, 2 * WIDTH_PX)
    return round(float(x)), round(float(y))


def _text(
    canvas: NDArray[np.uint8], text: str, at: tuple[int, int], size: float, colour: Colour, thickness: int = 1
) -> None:
    cv2.putText(canvas, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, colour, thickness, cv2.LINE_AA)
