"""What each push does to the tee, tabulated once.

At damping 0 the tee stops as soon as the pusher does, so the outcome of a push depends only on where the pusher
touches and in which direction it moves, seen from the tee. A few hundred simulated pushes therefore describe all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pymunk
import shapely.geometry as geometry
from numpy.typing import NDArray

from auras_ros.sim.pusht.env import Env

Array = NDArray[np.float64]

PUSHER_RADIUS_PX = 15.0
STEP_PX = 12.0  # how far the pusher moves each control step while pushing
STEPS = 16
ANGLES_DEG = (-35.0, 0.0, 35.0)
BAR = np.array([(-60, 30), (60, 30), (60, 0), (-60, 0)], dtype=np.float64)
STEM = np.array([(-15, 30), (-15, 120), (15, 120), (15, 30)], dtype=np.float64)
CORNERS = np.vstack([BAR, STEM])  # the tee's own frame, px
OUTLINE = geometry.Polygon(BAR).union(geometry.Polygon(STEM))


def rotation(angle: float) -> Array:
    """2x2 rotation by `angle` radians."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine], [sine, cosine]])


def corners(pose: Array) -> Array:
    """The tee's eight corners in the world, [8, 2] px, for a pose [x, y, angle]."""
    return CORNERS @ rotation(float(pose[2])).T + pose[:2]


@dataclass(frozen=True)
class PushTable:
    """P pushes in the tee's frame: where the pusher starts [P, 2], where it heads [P, 2], and what k steps of it
    do to the tee's pose, outcomes [P, STEPS, 3] as (dx, dy, dangle)."""

    starts: Array
    headings: Array
    outcomes: Array


class _Bench:
    """A bare table with pusher and tee, no walls: the physics of gym-pusht's step, without its bookkeeping."""

    def __init__(self) -> None:
        self.space = pymunk.Space()
        self.space.damping = 0.0
        self.pusher = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
        self.pusher.friction = 1
        self.space.add(self.pusher, pymunk.Circle(self.pusher, PUSHER_RADIUS_PX))
        self.tee, _ = Env.add_tee(self.space, (256, 300), 0)

    def place(self, pusher: Array, velocity: Array, tee: Array, angle: float) -> None:
        self.pusher.position, self.pusher.velocity = tuple(pusher), tuple(velocity)
        self.tee.angle, self.tee.position = angle, tuple(tee)
        self.tee.velocity, self.tee.angular_velocity = (0, 0), 0
        self.space.reindex_shapes_for_body(self.tee)
        self.space.reindex_shapes_for_body(self.pusher)

    def step(self, target: Array) -> None:
        for _ in range(10):
            position, velocity = np.array(self.pusher.position), np.array(self.pusher.velocity)
            self.pusher.velocity = tuple(velocity + (100 * (target - position) - 20 * velocity) * 0.01)
            self.space.step(0.01)


def _contacts(spacing_px: float = 8.0, gap_px: float = 4.0) -> list[tuple[Array, Array]]:
    """Start positions around the outline with the inward normal, skipping those that another side blocks."""
    ring = OUTLINE.exterior
    reach = PUSHER_RADIUS_PX + gap_px
    found: list[tuple[Array, Array]] = []
    points = [np.array(point) for point in ring.coords]
    for a, b in pairwise(points):
        length = float(np.linalg.norm(b - a))
        if length < 1:
            continue
        along = (b - a) / length
        outward = np.array([along[1], -along[0]]) if ring.is_ccw else np.array([-along[1], along[0]])
        count = max(2, int(length // spacing_px))
        for offset in (np.arange(count) + 0.5) / count * length:
            start = a + offset * along + outward * reach
            if OUTLINE.distance(geometry.Point(start)) >= reach - 1.0:
                found.append((start, -outward))
    return found


def _outcomes_of_push(bench: _Bench, start: Array, heading: Array) -> Array:
    origin = np.array([256.0, 256.0])
    bench.place(origin + start, np.zeros(2), origin, 0.0)
    outcomes = np.zeros((STEPS, 3))
    for k in range(STEPS):
        target = origin + start + heading * STEP_PX * (k + 1)
        bench.step(target)
        saved = (
            np.array(bench.pusher.position),
            np.array(bench.pusher.velocity),
            np.array(bench.tee.position),
            bench.tee.angle,
        )
        for _ in range(3):  # the outcome of stopping here, once everything has settled
            bench.step(target)
        outcomes[k] = (*(np.array(bench.tee.position) - origin), bench.tee.angle)
        bench.place(*saved)
    return outcomes


def build_push_table() -> PushTable:
    """Simulate every push once (well under a second)."""
    bench = _Bench()
    starts, headings, outcomes = [], [], []
    for start, inward in _contacts():
        for angle in np.deg2rad(ANGLES_DEG):
            heading = rotation(angle) @ inward
            starts.append(start)
            headings.append(heading)
            outcomes.append(_outcomes_of_push(bench, start, heading))
    return PushTable(np.array(starts), np.array(headings), np.array(outcomes))
