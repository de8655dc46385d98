"""The planning expert: it solves Push-T, and its way round the tee is the shortest there is.

Guards: a path search that returns a detour or a loop; an expert that walks through the tee.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise, permutations

import numpy as np
import pytest
import shapely.affinity as affinity
import shapely.geometry as geometry
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.train.demonstrations import DemonstrationSettings, expert_episodes
from auras_ros.train.push_table import OUTLINE, PUSHER_RADIUS_PX, PushTable
from auras_ros.train.pusht_expert import WALK_LEAD, WALK_PX, PushExpert, _along, _path, _shortest
from auras_ros.train.pusht_task import drifting_table

SOLVED = (0, 1, 2)


@pytest.mark.parametrize("seed", SOLVED)
def test_it_solves_the_task(table: PushTable, seed: int) -> None:
    world, expert = PushTWorld(), PushExpert(table)
    world.reset(seed)
    targets = (np.clip(expert.act(world), 0, 512) for _ in range(250))
    solved = any(world.step(target).success for target in targets)
    assert solved, f"seed {seed} not solved in 250 steps"


def graph(nodes: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    edge = np.full((nodes, nodes), np.inf)
    for i in range(nodes):
        for j in range(i + 1, nodes):
            if random.random() < 0.5:
                edge[i, j] = edge[j, i] = random.uniform(1, 10)
    return edge


def length(edge: np.ndarray, way: list[int]) -> float:
    return float(sum(edge[a, b] for a, b in zip([0, *way[:-1]], way, strict=True)))


def brute_force(edge: np.ndarray) -> float:
    last = len(edge) - 1
    ways = ([*inner, last] for k in range(last) for inner in permutations(range(1, last), k))
    return min(length(edge, list(way)) for way in ways)


@given(st.integers(2, 6), st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_shortest_is_the_best_of_all_ways(nodes: int, seed: int) -> None:
    edge = graph(nodes, seed)
    way, best = _shortest(edge), brute_force(edge)
    if not np.isfinite(best):
        assert way == []
    else:
        assert way[-1] == nodes - 1
        assert 0 not in way
        assert len(set(way)) == len(way)
        assert length(edge, way) == pytest.approx(best)


TEE = np.array([256.0, 256.0, 0.0])


def test_a_free_way_is_straight() -> None:
    start = np.array([60.0, 400.0])
    (only,) = _path(np.array([60.0, 60.0]), TEE, start)
    np.testing.assert_array_equal(only, start)


@given(st.floats(-np.pi, np.pi))
@settings(max_examples=15, deadline=None)
def test_a_blocked_way_goes_round_the_tee(angle: float) -> None:
    tee = np.array([256.0, 256.0, angle])
    outline = affinity.translate(affinity.rotate(OUTLINE, angle, origin=(0, 0), use_radians=True), *tee[:2])
    middle = np.array(outline.centroid.coords[0])
    pusher, start = middle + [-160.0, 0.0], middle + [160.0, 0.0]
    way = [pusher, *_path(pusher, tee, start)]
    assert len(way) > 2
    np.testing.assert_array_equal(way[-1], start)
    for a, b in pairwise(way):
        assert outline.distance(geometry.LineString([a, b])) >= PUSHER_RADIUS_PX


@given(st.lists(st.tuples(st.floats(0, 512), st.floats(0, 512)), min_size=1, max_size=4))
def test_one_step_never_goes_further_than_a_step(points: list[tuple[float, float]]) -> None:
    position = np.array([250.0, 250.0])
    target = _along([np.array(point) for point in points], position)
    assert np.linalg.norm(target - position) <= WALK_PX * WALK_LEAD + 1e-6


def test_a_corner_far_ahead_is_not_cut() -> None:
    corner, beyond = np.array([20.0, 0.0]), np.array([20.0, 100.0])
    np.testing.assert_array_equal(_along([corner, beyond], np.zeros(2)), corner)


def test_real_demonstrations_end_in_success_and_replay(table: PushTable) -> None:
    """What is recorded of a real episode, on a drifting tee, leads the same world to the same end."""
    recipe = DemonstrationSettings(1, SOLVED[0])
    data = expert_episodes(recipe, partial(drifting_table, 1.0), PushExpert(table), lambda text: None)
    assert 20 < len(data.episode) <= 250
    world = PushTWorld(float(np.random.default_rng(recipe.seed).uniform(0.1, 1.0)), 0.92)
    world.reset(recipe.seed)
    np.testing.assert_array_equal(world.image(), data.images[0, 0])
    outcomes = [world.step(action).success for action in data.actions.astype(np.float64)]
    assert outcomes.count(True) == 1
    assert outcomes[-1]
