"""The Push-T table: the same for the same seed, drifting as it says, and never moved by something not finite.

Guards: a world whose evaluation cannot be repeated; a drift that runs off the table.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.sim.pusht.world import (
    DRIFT_HIGH_PX,
    DRIFT_LOW_PX,
    DRIFT_SUCCESS_COVERAGE,
    IMAGE_PX,
    SIZE_PX,
    SUCCESS_COVERAGE,
    PushTWorld,
)
from auras_ros.sim.world import ActionError


def started(seed: int, drift_px: float = 0.0) -> PushTWorld:
    world = PushTWorld(drift_px)
    world.reset(seed)
    return world


def snapshot(world: PushTWorld) -> NDArray[np.float64]:
    return np.concatenate([world.agent, world.tee, world.goal])


def test_a_seed_gives_the_same_world_however_it_was_used_before() -> None:
    fresh, used = started(5), started(8)
    for _ in range(4):
        used.step(np.array([30.0, 400.0]))
    used.reset(5)
    np.testing.assert_array_equal(snapshot(fresh), snapshot(used))
    np.testing.assert_array_equal(fresh.image(), used.image())


def test_the_same_actions_give_the_same_run() -> None:
    worlds = started(5, 2.0), started(5, 2.0)
    for target in np.random.default_rng(0).uniform(50, 450, (15, 2)):
        a, b = (world.step(target) for world in worlds)
        assert a == b
    np.testing.assert_array_equal(snapshot(worlds[0]), snapshot(worlds[1]))


def test_seeds_differ() -> None:
    assert len({tuple(snapshot(started(seed))) for seed in range(6)}) == 6


def away(world: PushTWorld) -> NDArray[np.float64]:
    """A target far from the tee, so that pusher and tee never touch."""
    return np.where(world.tee[:2] < SIZE_PX / 2, SIZE_PX - 20.0, 20.0)


def undisturbed(drift_px: float) -> PushTWorld:
    """A table whose tee starts inside the borders of the drift, with the pusher parked in a far corner."""
    for seed in range(200):
        world = started(seed, drift_px)
        inside = (world.tee[:2] > DRIFT_LOW_PX + 60) & (world.tee[:2] < DRIFT_HIGH_PX - 60)
        far = np.linalg.norm(world.agent - world.tee[:2]) > 200
        if inside.all() and far and np.linalg.norm(world.agent - away(world)) < 200:
            return world
    raise AssertionError("no such seed")


def test_a_static_tee_does_not_move_untouched() -> None:
    world = undisturbed(0.0)
    before = world.tee
    for _ in range(5):
        world.step(away(world))
    np.testing.assert_array_equal(world.tee, before)


def test_the_tee_drifts_by_drift_px_a_step_in_one_direction() -> None:
    world = undisturbed(3.0)
    places = [world.tee]
    target = away(world)
    for _ in range(8):
        world.step(target)
        places.append(world.tee)
    moves = np.diff(np.array(places), axis=0)
    np.testing.assert_allclose(np.linalg.norm(moves[:, :2], axis=1), 3.0, rtol=1e-6)
    np.testing.assert_allclose(moves, np.broadcast_to(moves[0], moves.shape), atol=1e-6)
    assert moves[0, 2] == pytest.approx(0)


def test_the_drift_is_reflected_at_the_borders() -> None:
    world = undisturbed(3.0)
    world._velocity = np.array([3.0, 0.0])
    places = []
    for _ in range(250):
        world._drift()
        places.append(world.tee[:2])
    x, y = np.array(places).T
    assert x.min() > DRIFT_LOW_PX
    assert x.max() < DRIFT_HIGH_PX
    assert x.min() < DRIFT_LOW_PX + 3.1
    assert x.max() > DRIFT_HIGH_PX - 3.1
    np.testing.assert_allclose(np.abs(np.diff(x)), 3.0, atol=1e-9)
    assert (np.diff(np.sign(np.diff(x))) != 0).sum() >= 2
    assert np.ptp(y) == 0


@pytest.mark.parametrize(
    ("action", "refused"),
    [
        ([np.nan, 600.0], "not_finite: agent_x: nan"),
        ([100.0, np.inf], "not_finite: agent_y: inf"),
        ([100.0], r"size: expected 2 numbers \(agent_x, agent_y\)"),
        ([1.0, 2.0, 3.0], "size"),
        ([[1.0, 2.0]], "size"),
        ([-0.5, 100.0], r"out_of_range: agent_x: must be in \[0, 512\] px, got -0.5"),
        ([100.0, 900.0], "out_of_range: agent_y"),
    ],
)
def test_an_action_that_no_table_takes_is_refused_by_name_and_moves_nothing(action: list[float], refused: str) -> None:
    world = started(1)
    before = snapshot(world)
    with pytest.raises(ActionError, match=refused):
        world.step(np.array(action))
    np.testing.assert_array_equal(snapshot(world), before)


@pytest.mark.parametrize("drift_px", [-0.1, 20.0, float("nan")])
def test_a_drift_out_of_bounds_is_refused(drift_px: float) -> None:
    with pytest.raises(ValueError, match="drift_px must be in"):
        PushTWorld(drift_px)


def test_what_counts_as_success() -> None:
    assert PushTWorld().success_coverage == SUCCESS_COVERAGE == 0.95
    assert PushTWorld(1.0).success_coverage == DRIFT_SUCCESS_COVERAGE
    assert PushTWorld(1.0, 0.5).success_coverage == 0.5


def test_reward_is_coverage_over_the_threshold() -> None:
    world = PushTWorld(success_coverage=0.5)
    world.reset(0)
    block = world._env.block  # the angle first: it turns the tee about its centre of mass, not its origin
    block.angle, block.position = world.goal[2], tuple(world.goal[:2])
    world._env.space.reindex_shapes_for_body(block)
    done = world.step(world.agent)
    assert done.success
    assert done.sub_goals["coverage"] > 0.9
    assert done.reward == 1.0
    world.reset(0)
    outcome = world.step(world.agent)
    assert outcome.reward == pytest.approx(min(1.0, outcome.sub_goals["coverage"] / 0.5))


@pytest.mark.parametrize("size_px", [IMAGE_PX, 64])
def test_an_image_is_rgb_of_the_size_asked_for(size_px: int) -> None:
    image = started(2).image("top", size_px, size_px)
    assert image.shape == (size_px, size_px, 3)
    assert image.dtype == np.uint8
    red, green, _ = image.reshape(-1, 3).astype(int).T
    assert ((green - red) > 50).any(), "the goal is light green in RGB and BGR alike; grey would be neither"


def test_colours_are_rgb() -> None:
    """The pusher is royal blue: its blue is larger than its red in RGB."""
    world = started(2)
    x, y = (world.agent / SIZE_PX * IMAGE_PX).astype(int)
    red, _, blue = world.image()[y, x].astype(int)
    assert blue > red + 50


def test_a_tee_beyond_a_border_drifts_back_in() -> None:
    """Episodes may start there, and the pusher may push the tee there."""
    world = undisturbed(3.0)
    world._velocity = np.array([3.0, 0.0])
    world._env.block.position = (DRIFT_HIGH_PX + 20, 256.0)
    for _ in range(10):
        world._drift()
    assert world.tee[0] < DRIFT_HIGH_PX
