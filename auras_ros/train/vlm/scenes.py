"""Scenes of a Push-T table: what lies where, and what is true of it. Nothing here looks at pixels.

A scene is drawn from its seed alone. What is true of it follows from its geometry, in px of the 512 px table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import shapely.affinity as affinity
import shapely.geometry as geometry
from numpy.typing import NDArray

from auras_ros.sim.pusht.things import Disc
from auras_ros.sim.pusht.world import SIZE_PX, SUCCESS_COVERAGE
from auras_ros.train.push_table import OUTLINE, PUSHER_RADIUS_PX, corners, rotation

Array = NDArray[np.float64]

GOAL = np.array([SIZE_PX / 2, SIZE_PX / 2, np.pi / 4])
COLOURS = {"red": (220, 40, 40), "yellow": (235, 200, 20), "purple": (150, 50, 200), "black": (25, 25, 25)}
MOST = 4  # things of one colour
HALF_WAY_PX = 45.0  # half the width of the band between tee and goal
CLEAR_PX = 8.0  # no thing's edge is nearer to the band's border: 1.5 pixels of the picture
GAP_PX = 10.0  # between things, and between a thing and the tee or the pusher
WALL_PX = 8.0
NEAR_COVERAGE = 0.6  # from here to success: nearly on the goal
CENTROID = np.array([OUTLINE.centroid.x, OUTLINE.centroid.y])
TRIES = 400
KINDS = {"on": 0.25, "near": 0.25, "aligned": 0.1, "turned": 0.35, "any": 0.05}  # shares of scenes
EMPTY_SHARE = 0.15  # of scenes, as the published table is


@dataclass(frozen=True, eq=False)
class Scene:
    """tee: pose [x, y, angle]; pusher: [x, y]; things with their colours' names."""

    tee: Array
    pusher: Array
    things: tuple[Disc, ...]
    names: tuple[str, ...]

    @property
    def centre(self) -> Array:
        """The tee's centre of area."""
        return centre(self.tee)

    @property
    def coverage(self) -> float:
        """Share of the goal that the tee covers."""
        return coverage(self.tee)

    @property
    def turn(self) -> float:
        """Radians from the tee's angle to the goal's, by the shorter way; positive is clockwise in the picture."""
        return float((GOAL[2] - self.tee[2] + np.pi) % (2 * np.pi) - np.pi)

    @property
    def in_the_way(self) -> list[bool]:
        """For each thing, whether it touches the band between the tee's centre and the goal's."""
        return [clearance(self.tee, thing) < 0 for thing in self.things]

    def count(self, colour: str) -> int:
        return self.names.count(colour)


def outline(tee: Array) -> geometry.Polygon:
    turn = rotation(float(tee[2]))
    return affinity.affine_transform(OUTLINE, [turn[0, 0], turn[0, 1], turn[1, 0], turn[1, 1], tee[0], tee[1]])


def centre(tee: Array) -> Array:
    at: Array = rotation(float(tee[2])) @ CENTROID + tee[:2]
    return at


def coverage(tee: Array) -> float:
    return float(outline(tee).intersection(outline(GOAL)).area / OUTLINE.area)


def clearance(tee: Array, thing: Disc) -> float:
    """From a thing's edge to the band between tee and goal, px; negative where it touches it."""
    line = geometry.LineString([centre(tee), centre(GOAL)])
    return float(line.distance(geometry.Point(thing.x, thing.y))) - thing.radius - HALF_WAY_PX


def draw_scene(seed: int) -> Scene:
    """The scene of this seed."""
    random = np.random.default_rng(seed)
    while True:
        tee = _pose(random)
        pusher = _pusher(outline(tee), random)
        placed = _things(tee, pusher, random)
        if placed is not None:
            return Scene(tee, pusher, *placed)


def _things(tee: Array, pusher: Array, random: np.random.Generator) -> tuple[tuple[Disc, ...], tuple[str, ...]] | None:
    """Things and their colours; None if there is no room for as many. Their number says nothing about the way: the
    first thing blocks it in half of the scenes, where there is room between tee and goal."""
    if random.random() < EMPTY_SHARE:
        return (), ()
    names = [name for name in COLOURS for _ in range(random.integers(MOST + 1))]
    random.shuffle(names)
    blocked, things = random.random() < 0.5, list[Disc]()
    for place, name in enumerate(names):
        inside = blocked and (place == 0 or random.random() < 0.1)
        made = _thing(tee, pusher, things, name, inside, random)
        if made is None and inside:
            blocked = blocked and place > 0
            made = _thing(tee, pusher, things, name, False, random)
        if made is None:
            return None
        things.append(made)
    return tuple(things), tuple(names)


def _pose(random: np.random.Generator) -> Array:
    kind = random.choice(list(KINDS), p=list(KINDS.values()))
    if kind == "on":
        return _covering(random, SUCCESS_COVERAGE, 1.0)
    if kind == "near":
        return _covering(random, NEAR_COVERAGE, SUCCESS_COVERAGE)
    while True:
        turn = np.deg2rad({"aligned": random.uniform(-5, 5), "any": random.uniform(-180, 180)}.get(kind, 0.0))
        if kind == "turned":
            turn = np.deg2rad(random.uniform(10, 170)) * random.choice([-1, 1])
        tee = np.array([*random.uniform(WALL_PX, SIZE_PX - WALL_PX, 2), GOAL[2] - turn])
        points = corners(tee)
        if points.min() > WALL_PX and points.max() < SIZE_PX - WALL_PX:
            return tee


def _covering(random: np.random.Generator, low: float, high: float) -> Array:
    """A pose that covers a share of the goal drawn from [low, high): the goal's, moved along a random direction."""
    wanted = random.uniform(low, high)
    direction = random.normal(size=3) * np.array([1.0, 1.0, 0.02])
    direction /= np.linalg.norm(direction[:2])
    near, far = 0.0, 60.0
    for _ in range(14):
        middle = (near + far) / 2
        near, far = (middle, far) if coverage(GOAL + direction * middle) > wanted else (near, middle)
    pose: Array = GOAL + direction * near
    return pose


def _pusher(tee: geometry.Polygon, random: np.random.Generator) -> Array:
    """Anywhere beside the tee; in a third of the scenes it touches it."""
    touching = random.random() < 1 / 3
    while True:
        at: Array = random.uniform(WALL_PX + PUSHER_RADIUS_PX, SIZE_PX - WALL_PX - PUSHER_RADIUS_PX, 2)
        gap = tee.distance(geometry.Point(at))
        if touching and 0 < gap < 80:
            point = np.array(tee.exterior.interpolate(tee.exterior.project(geometry.Point(at))).coords[0])
            at = point + (at - point) / gap * (PUSHER_RADIUS_PX - 0.5)
            gap = tee.distance(geometry.Point(at))
            if abs(gap - PUSHER_RADIUS_PX) < 0.6 and at.min() > 20 and at.max() < SIZE_PX - 20:
                return at
        elif not touching and gap > PUSHER_RADIUS_PX:
            return at


def _thing(
    tee: Array, pusher: Array, others: list[Disc], name: str, inside: bool, random: np.random.Generator
) -> Disc | None:
    """A thing of this colour in the way or beside it, clear of everything; None if there is no place for it."""
    radius = random.uniform(12, 20)
    tint = np.clip(np.array(COLOURS[name]) + random.integers(-15, 16, 3), 0, 255)
    rgb = (int(tint[0]), int(tint[1]), int(tint[2]))
    low, high = WALL_PX + radius, SIZE_PX - WALL_PX - radius
    if inside:  # else most tries would miss the band
        ends = np.stack([centre(tee), centre(GOAL)])
        box = ends.min(0) - HALF_WAY_PX - radius, ends.max(0) + HALF_WAY_PX + radius
    else:
        box = np.full(2, low), np.full(2, high)
    shape = outline(tee)
    for _ in range(TRIES):
        x, y = np.clip(random.uniform(*box), low, high)
        if any(np.hypot(x - each.x, y - each.y) < radius + each.radius + GAP_PX for each in others):
            continue
        thing = Disc(float(x), float(y), radius, rgb)
        space = clearance(tee, thing)
        if (space < 0) is not inside or abs(space) < CLEAR_PX:
            continue
        if np.hypot(x - pusher[0], y - pusher[1]) < radius + PUSHER_RADIUS_PX + GAP_PX:
            continue
        if shape.distance(geometry.Point(x, y)) >= radius + GAP_PX:
            return thing
    return None
