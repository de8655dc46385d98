"""A planning expert for Push-T: pick a push from the table, walk round the tee to where it starts, push, repeat.

It sees the true pose of the tee, which no policy does; its demonstrations and take-overs teach the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import shapely.affinity as affinity
import shapely.geometry as geometry
from numpy.typing import NDArray

from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.train.push_table import CORNERS, OUTLINE, PUSHER_RADIUS_PX, STEP_PX, STEPS, PushTable, corners, rotation

Array = NDArray[np.float64]

WALK_PX = 22.0  # per control step, before the lead
WALK_LEAD = 1.6  # the pusher's controller lags about two steps, so the target leads by this much
TRAVEL_COST = 0.03
LENGTH_COST = 0.045  # per push step: of two equal pushes take the shorter
CANDIDATES = 60
ARRIVED_PX = 3.0


@dataclass
class _PushPlan:
    start: Array
    heading: Array
    steps: int
    tee: Array  # the pose the plan was made for
    pushed: int = -1  # -1 while walking to the start


class PushExpert:
    """act(world) -> target of the pusher [x, y] px, once a control step."""

    def __init__(self, table: PushTable) -> None:
        self._table = table
        self._plan: _PushPlan | None = None

    def reset(self) -> None:
        self._plan = None

    def truth(self, world: PushTWorld) -> Array:
        """The tee's pose [x, y, angle], px and radians."""
        return world.tee

    def act(self, world: PushTWorld) -> Array:
        pusher, tee, goal, plan = world.agent, world.tee, world.goal, self._plan
        if plan is None or (plan.pushed < 0 and _moved(tee, plan.tee)):
            plan = self._plan = self._choose(pusher, tee, goal)
        if plan.pushed < 0:
            if np.linalg.norm(pusher - plan.start) >= ARRIVED_PX:
                return _along(_path(pusher, tee, plan.start), pusher)
            plan.pushed = 0
        plan.pushed += 1
        if plan.pushed >= plan.steps + 2:  # two steps to settle before looking again
            self._plan = None
        return plan.start + plan.heading * STEP_PX * min(plan.pushed, plan.steps)

    def _after(self, tee: Array, goal: Array) -> tuple[Array, Array, Array]:
        """(cost, positions, angles) of the tee after every tabulated push: mean corner distance to the goal [P, K]."""
        outcomes = self._table.outcomes
        angle = tee[2] + outcomes[..., 2]
        position = tee[:2] + outcomes[..., :2] @ rotation(float(tee[2])).T
        cosine, sine = np.cos(angle)[..., None], np.sin(angle)[..., None]
        target = corners(goal)
        dx = cosine * CORNERS[:, 0] - sine * CORNERS[:, 1] + position[..., 0:1] - target[:, 0]
        dy = sine * CORNERS[:, 0] + cosine * CORNERS[:, 1] + position[..., 1:2] - target[:, 1]
        return np.sqrt(dx**2 + dy**2).mean(-1), position, angle

    def _choose(self, pusher: Array, tee: Array, goal: Array) -> _PushPlan:
        """The best push by two-step lookahead; by one step when the tee is nearly there."""
        turn = rotation(float(tee[2]))
        starts, headings = tee[:2] + self._table.starts @ turn.T, self._table.headings @ turn.T
        cost, position, angle = self._after(tee, goal)
        steps = np.arange(1, STEPS + 1)
        ends = starts[:, None] + headings[:, None] * STEP_PX * steps[:, None]
        reachable = ((starts > 24) & (starts < 488)).all(-1, keepdims=True) & ((ends > 20) & (ends < 492)).all(-1)
        inside = ((position > 40) & (position < 472)).all(-1)
        travel = TRAVEL_COST * np.linalg.norm(starts - pusher, axis=-1)
        total = np.where(reachable & inside, cost + travel[:, None] + LENGTH_COST * steps, 1e6)
        push, step = np.unravel_index(np.argmin(total), total.shape)
        if np.linalg.norm(corners(tee) - corners(goal), axis=-1).mean() > 6:
            best = np.inf
            for flat in np.argsort(total.ravel())[:CANDIDATES]:
                i, k = np.unravel_index(flat, total.shape)
                then, _, _ = self._after(np.array([*position[i, k], angle[i, k]]), goal)
                value = 0.5 * cost[i, k] + then.min() + travel[i]
                if value < best:
                    best, push, step = value, i, k
        return _PushPlan(starts[push], headings[push], int(step) + 1, tee.copy())


def _moved(a: Array, b: Array) -> bool:
    return bool(np.linalg.norm(a[:2] - b[:2]) > 6 or abs(a[2] - b[2]) > 0.1)


def _along(path: list[Array], position: Array) -> Array:
    """The point one step's walk along `path`; a corner far ahead is not cut."""
    left = WALK_PX * WALK_LEAD
    for index, waypoint in enumerate(path):
        distance = float(np.linalg.norm(waypoint - position))
        if distance >= left:
            return np.asarray(position + (waypoint - position) / distance * left)
        position = waypoint
        left -= distance
        if distance > 8 and index < len(path) - 1:
            break
    return position


def _path(pusher: Array, tee: Array, start: Array) -> list[Array]:
    """Waypoints from the pusher to `start` round the tee: a visibility graph over its widened outline."""
    turn = rotation(float(tee[2]))
    outline = affinity.affine_transform(OUTLINE, [turn[0, 0], turn[0, 1], turn[1, 0], turn[1, 1], tee[0], tee[1]])
    blocked = outline.buffer(PUSHER_RADIUS_PX + 2.0)
    if not blocked.intersects(geometry.LineString([pusher, start])):
        return [start]
    corridor = outline.buffer(PUSHER_RADIUS_PX + 6.0, join_style=2).simplify(0.5)
    via = [np.array(point) for point in corridor.exterior.coords[:-1]]
    nodes = [pusher, *(p for p in via if 18 < p[0] < 494 and 18 < p[1] < 494), start]
    leaving = blocked
    if blocked.contains(geometry.Point(pusher)):  # touching the tee: only moves away from it count as free
        leaving = outline.buffer(max(1.0, outline.distance(geometry.Point(pusher)) - 1.0))
    edge = np.full((len(nodes), len(nodes)), np.inf)
    for i in range(len(nodes)):
        for j in range(i + 1, len(nodes)):
            obstacle = leaving if i == 0 else blocked
            if not obstacle.intersects(geometry.LineString([nodes[i], nodes[j]])):
                edge[i, j] = edge[j, i] = np.linalg.norm(nodes[i] - nodes[j])
    return [nodes[i] for i in _shortest(edge)] or [start]


def _shortest(edge: Array) -> list[int]:
    """Dijkstra from node 0 to the last; the nodes after 0 in order, empty when there is no way."""
    previous: dict[int, int] = {}
    waiting = [(0.0, 0, 0)]  # length of the way, node, the node before it
    while waiting:
        length, node, before = heappop(waiting)
        if node not in previous:
            previous[node] = before
            for other in np.flatnonzero(np.isfinite(edge[node])).tolist():
                heappush(waiting, (length + float(edge[node, other]), other, node))
    path, node = [], len(edge) - 1
    while node in previous and node != 0:
        path.append(node)
        node = previous[node]
    return path[::-1]
