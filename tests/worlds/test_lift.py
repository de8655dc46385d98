"""Lift's moving table, its jumping cube, and the expert that solves both.

Guards: a table that moves under a cube that stays; a table that is slowed down by what it touches; a speed that holds
for the first episode alone; a jump that comes twice or not at all; an expert whose gripper is left behind.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("robosuite", reason="needs robosuite: make test-worlds")

from auras_ros.sim.robosuite.layout import POINTS_DOWN_RAD
from auras_ros.sim.robosuite.lift import JUMP_STEPS, MOVING_TABLE_M_S, TABLE_REACH_M, LiftWorld
from auras_ros.train.demonstrations import DemonstrationSettings, expert_episodes
from auras_ros.train.lift_expert import LiftExpert, LiftPositionExpert

STILL = np.array([0.0] * 6 + [-1.0])
DT_S = 0.05


def made(**options: float) -> LiftWorld:
    return LiftWorld(objects=True, **options)


def cube(world: LiftWorld) -> np.ndarray:
    state = world.state()
    return np.array([state[f"cube_pos_{axis}"] for axis in "xyz"])


def table(world: LiftWorld) -> float:
    return float(world._simulation.env.sim.data.get_joint_qpos("table"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_table_carries_the_cube_at_its_speed_and_turns_round(seed: int) -> None:
    world = made(table_m_s=0.1)
    world.reset(seed)
    places, cubes = [], []
    for _ in range(80):
        world.step(STILL)
        places.append(table(world))
        cubes.append(cube(world)[:2])
    speeds = np.diff(places) / DT_S
    np.testing.assert_allclose(np.abs(speeds), 0.1, rtol=1e-3)
    assert {1.0, -1.0} == set(np.sign(speeds))
    assert max(np.abs(places)) < TABLE_REACH_M + 0.1 * DT_S + 1e-6
    axis = world._simulation.env.sim.model.jnt_axis[0][:2]
    on_table = np.array(cubes) - np.outer(places, axis)
    before_turn = int(np.argmax(speeds < 0))
    carried = on_table[5:before_turn]  # it falls a centimetre first
    assert np.linalg.norm(carried - carried[0], axis=1).max() < 0.002
    assert np.linalg.norm(on_table[5:] - on_table[5], axis=1).max() < 0.01
    world.close()


def test_directions_are_the_seeds() -> None:
    world, axes = made(table_m_s=0.1), []
    for seed in (3, 4, 3):
        world.reset(seed)
        world.step(STILL)
        axes.append(tuple(world._simulation.env.sim.model.jnt_axis[0]))
    assert axes[0] == axes[2] != axes[1]
    world.close()


def test_its_speed_is_changed_while_it_runs_and_holds_after_a_reset() -> None:
    world = made(table_m_s=0.1)
    world.reset(0)
    for _ in range(3):
        world.step(STILL)
    world.disturb("table_m_s", 0.0)
    world.step(STILL)
    before = table(world)
    world.step(STILL)
    assert table(world) == pytest.approx(before, abs=1e-6)
    world.disturb("table_m_s", 0.2)
    world.reset(1)
    world.step(STILL)
    before = table(world)
    world.step(STILL)
    assert abs(table(world) - before) == pytest.approx(0.2 * DT_S, rel=1e-3)
    with pytest.raises(ValueError, match=r"lift: table_m_s: must be in \[0\.0, 0\.5\], got 9"):
        world.disturb("table_m_s", 9)
    with pytest.raises(ValueError, match="lift: jump_m cannot be changed while it runs"):
        world.disturb("jump_m", 0.1)
    world.close()


def test_a_table_that_stands_still_is_robosuites_own() -> None:
    world = made(table_m_s=0.0)
    assert "table" not in world._simulation.env.sim.model.joint_names
    world.disturb("table_m_s", 0.0)
    with pytest.raises(ValueError, match="lift: table_m_s was 0 at first: this table stands still"):
        world.disturb("table_m_s", 0.1)
    world.close()


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_cube_jumps_once_at_the_seeds_time(seed: int) -> None:
    plain, jumping, seen = made(table_m_s=0.0), made(jump_m=0.08), []
    for world in (plain, jumping):
        world.reset(seed)
        places = []
        for _ in range(JUMP_STEPS[1] + 5):
            world.step(STILL)
            places.append(cube(world))
        seen.append(np.array(places))
        world.close()
    still, moved = seen
    first = int(np.flatnonzero((still != moved).any(axis=1))[0])
    assert JUMP_STEPS[0] <= first + 1 <= JUMP_STEPS[1]
    assert np.linalg.norm(moved[first] - still[first - 1]) == pytest.approx(0.08, abs=0.003)
    np.testing.assert_allclose(moved[first:], np.broadcast_to(moved[first], moved[first:].shape), atol=0.003)


@pytest.mark.parametrize("options", [{}, {"table_m_s": MOVING_TABLE_M_S}, {"jump_m": 0.08}])
def test_the_expert_lifts_it(options: dict[str, float]) -> None:
    world, expert, steps = made(**options), LiftExpert(), []
    for seed in range(6):
        world.reset(seed)
        expert.reset()
        results = (world.step(np.clip(expert.act(world), -1, 1)) for _ in range(100))
        steps.append(next((number for number, one in enumerate(results, 1) if one.success), None))
    assert None not in steps
    assert world.step(STILL).sub_goals.keys() == {"reach", "grasp", "lift"}
    world.close()


def test_demonstrations_of_it_are_collected_and_replay() -> None:
    """Two cameras; what no sensor knows is the truth, and stands in the state behind what sensors tell."""
    world = made(table_m_s=0.1)
    recipe = DemonstrationSettings(1, 0)
    data = expert_episodes(recipe, lambda _: world, LiftExpert(), lambda _: None)
    assert data.images.shape[1:] == (2, 84, 84, 3)
    assert (data.state.shape[1], data.truth.shape[1], data.actions.shape[1]) == (27, 7, 7)
    np.testing.assert_array_equal(data.state[:, 16:23], data.truth)
    world.reset(0)
    np.testing.assert_array_equal(world.image("agentview", 84, 84), data.images[0, 0])
    outcomes = [world.step(action).success for action in data.actions.astype(np.float64)]
    assert outcomes[-1]
    world.close()


@pytest.mark.parametrize("absolute", [True, False])
def test_without_turns_the_gripper_keeps_pointing_down(absolute: bool) -> None:
    world = LiftWorld(absolute=absolute, turns=False)
    world.reset(0)
    goal = np.array([0.05, 0.1, 0.95, -1.0] if absolute else [0.2, 0.3, 0.0, -1.0])
    for _ in range(25):
        world.step(goal)
    turned = np.abs(world._simulation.gripper_pose(0)[3:])  # half a turn: its axis may have either sign
    np.testing.assert_allclose(turned, POINTS_DOWN_RAD, atol=0.03 if absolute else 0.3)
    state = world.state()
    assert ("x" in state) is absolute
    assert "rx" not in state
    if absolute:
        np.testing.assert_allclose([state[axis] for axis in "xyz"], goal[:3], atol=0.01)
    world.close()


def test_the_expert_of_positions_lifts_the_cube_of_a_moving_table() -> None:
    recipe = DemonstrationSettings(3, 0)
    world = made(absolute=True, turns=False, table_m_s=0.1)
    data = expert_episodes(recipe, lambda random: world, LiftPositionExpert(), lambda text: None)
    assert data.episode[-1] == 2
    world.close()
