"""robosuite's worlds, in robosuite: what every world promises, and that what is known without it is true.

Guards: an episode that depends on the one before, or on who looked; a camera, a bound or a frame that is not the
model's; pictures upside down; a library that complains at the end of a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import radians, tan
from typing import Any

import numpy as np
import pytest

pytest.importorskip("robosuite", reason="needs robosuite: make test-worlds")

from auras_ros.sim.robosuite.layout import OBJECTS, flattened
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld, ToolHangWorld, TransportWorld
from auras_ros.sim.robosuite.world import RobosuiteWorld
from auras_ros.sim.world import ActionError, ActionRefusal

STEPS = 8
MADE: dict[str, Callable[..., RobosuiteWorld]] = {
    "lift": LiftWorld,
    "lift-moving": partial(LiftWorld, table_m_s=0.2),
    "lift-jump": partial(LiftWorld, jump_m=0.08),
    "can": CanWorld,
    "square": SquareWorld,
    "tool_hang": ToolHangWorld,
    "transport": TransportWorld,
}


@pytest.fixture(params=MADE)
def make(request: pytest.FixtureRequest) -> Callable[..., RobosuiteWorld]:
    return MADE[request.param]


@pytest.fixture
def lift() -> Iterator[RobosuiteWorld]:
    world = LiftWorld(objects=True)
    world.reset(0)
    yield world
    world.close()


def actions(world: RobosuiteWorld, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (STEPS, len(world.channels)))


def episode(world: RobosuiteWorld, seed: int, look: bool) -> tuple[list[Any], dict[str, float], list[bytes]]:
    world.reset(seed)
    results = []
    for action in actions(world):
        results.append(world.step(action))
        if look:
            world.state()
            world.image(world.cameras[0].name, 32, 48)
    pictures = [world.image(each.name, each.height, each.width) for each in world.cameras]
    for each, picture in zip(world.cameras, pictures, strict=True):
        assert (picture.shape, picture.dtype) == ((each.height, each.width, 3), np.uint8)
        assert picture.std() > 5, f"{each.name} shows nothing"
    return results, dict(world.state()), [picture.tobytes() for picture in pictures]


@pytest.mark.parametrize("kind", [LiftWorld, CanWorld, SquareWorld, ToolHangWorld, TransportWorld])
def test_the_numbers_of_the_objects_are_known_without_it(kind: type[RobosuiteWorld]) -> None:
    known = [name for part, size in OBJECTS[kind.environment] for name in flattened(part, [0.0] * size)]
    plain, told = kind(), kind(objects=True)
    for world in (plain, told):
        world.reset(0)
    assert [name for name in told.state() if name not in plain.state()] == known
    plain.close()
    told.close()


def test_the_same_seed_and_actions_give_the_same_episode(make: Callable[..., RobosuiteWorld]) -> None:
    """Bit for bit: in a fresh world and in a used one, whatever was played and looked at before."""
    used, fresh = make(objects=True), make(objects=True)
    first = episode(used, 5, look=True)
    other = episode(used, 6, look=False)
    assert other[1] != first[1]
    assert other[2] != first[2]
    assert episode(fresh, 5, look=False) == first
    assert episode(used, 5, look=False) == first
    for result in first[0]:
        assert tuple(result.sub_goals) == used.sub_goals
        assert all(0.0 <= share <= 1.0 for share in (result.reward, *result.sub_goals.values()))
        assert not result.success
    for world in (used, fresh):
        world.close()


def test_the_tables_of_cameras_and_channels_are_those_of_the_model(make: Callable[..., RobosuiteWorld]) -> None:
    world = make(cameras=4)
    model, env = world._simulation.env.sim.model, world._simulation.env
    for each in world.cameras:
        angle = float(model.cam_fovy[model.camera_name2id(each.name)])
        assert each.intrinsics is not None
        assert each.intrinsics[1] == pytest.approx(each.height / 2 / tan(radians(angle) / 2))
    low, high = env.action_spec
    np.testing.assert_array_equal([each.low for each in world.channels], low)
    np.testing.assert_array_equal([each.high for each in world.channels], high)
    assert env.control_timestep * 1000 == world.control_dt_ms
    world.close()


def test_a_bad_action_is_refused_by_name_and_moves_nothing(lift: RobosuiteWorld) -> None:
    before, time_s = dict(lift.state()), lift._simulation.env.sim.data.time
    wrong = [(np.zeros(6), ActionRefusal.SIZE), (np.full(7, np.nan), ActionRefusal.NOT_FINITE)]
    for action, refusal in [*wrong, (np.full(7, 1.01), ActionRefusal.OUT_OF_RANGE)]:
        with pytest.raises(ActionError, match=f"action refused: {refusal.value}: ") as refused:
            lift.step(action)
        assert refused.value.refusal is refusal
    assert dict(lift.state()) == before
    assert lift._simulation.env.sim.data.time == time_s


def test_an_increment_moves_along_the_worlds_axes() -> None:
    """Both arms of transport, whose bases are turned: positive x is positive x."""
    world = TransportWorld()
    world.reset(0)
    before = dict(world.state())
    action = np.zeros(14)
    action[[0, 7]] = 1.0
    for _ in range(4):
        world.step(action)
    after = world.state()
    for robot in ("robot0", "robot1"):
        moved = [after[f"{robot}_eef_pos_{axis}"] - before[f"{robot}_eef_pos_{axis}"] for axis in "xyz"]
        assert moved[0] > 0.03
        assert np.abs(moved[1:]).max() < 0.02
    world.close()


@pytest.mark.parametrize("kind", [LiftWorld, TransportWorld])
def test_absolute_actions_are_poses_in_the_worlds_frame(kind: type[RobosuiteWorld]) -> None:
    """The pose under the channels' names, held, keeps arm and fingers where they are: arming starts from there."""
    world = kind(absolute=True)
    world.reset(0)
    names = [each.name for each in world.channels]
    state = world.state()
    here = np.array([state[each] for each in names])
    fingers = [each for each in state if "gripper_qpos" in each]
    goal = here + [0.05 if each.endswith("z") and "r" not in each.rpartition("_")[2] else 0.0 for each in names]
    for target in (here, goal):
        for _ in range(20):
            world.step(target)
        reached = np.array([world.state()[each] for each in names])
        positions = [number for number in range(len(names)) if number % 7 < 3]
        np.testing.assert_allclose(reached[positions], target[positions], atol=0.01)
        for first in range(3, len(names), 7):
            turned = [_matrix(values[first : first + 3]) for values in (reached, target)]
            assert np.trace(turned[0].T @ turned[1]) > 1 + 2 * np.cos(0.1)
    np.testing.assert_allclose([world.state()[each] for each in fingers], [state[each] for each in fingers], atol=0.002)
    world.close()


def test_how_a_gripper_is_driven_is_in_the_state(lift: RobosuiteWorld) -> None:
    lift.reset(0)
    assert lift.state()["gripper"] == 0.0
    lift.step(np.array([0.0] * 6 + [1.0]))
    assert lift.state()["gripper"] == 1.0
    lift.reset(1)
    assert lift.state()["gripper"] == 0.0


def _matrix(vector: np.ndarray) -> np.ndarray:
    """Of a rotation vector (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)


def test_the_calibration_finds_the_cube_in_the_picture(lift: RobosuiteWorld) -> None:
    """A picture that is upside down, mirrored or scaled otherwise has its red pixels elsewhere."""
    camera = lift.cameras[0]
    data, model = lift._simulation.env.sim.data, lift._simulation.env.sim.model
    data.set_joint_qpos("cube_joint0", [0.08, 0.15, 0.82, 1.0, 0.0, 0.0, 0.0])
    lift._simulation.env.sim.forward()
    number, cube = model.camera_name2id(camera.name), data.body_xpos[model.body_name2id("cube_main")]
    x, y, z = data.cam_xmat[number].reshape(3, 3).T @ (cube - data.cam_xpos[number])  # z: backwards, y: up
    assert camera.intrinsics is not None
    fx, fy, cx, cy = camera.intrinsics
    expected = np.array([cy + fy * y / z, cx - fx * x / z])
    picture = lift.image(camera.name, camera.height, camera.width).astype(int)
    red = np.argwhere((picture[..., 0] > 100) & (picture[..., 0] > 2 * picture[..., 1]))
    assert len(red) > 10
    np.testing.assert_allclose(red.mean(axis=0), expected, atol=2.5)


def test_images_of_any_size_and_what_no_camera_can_show(lift: RobosuiteWorld) -> None:
    for height, width in ((16, 16), (84, 84), (600, 800), (84, 84)):  # beyond the first buffer, and back
        assert lift.image("agentview", height, width).shape == (height, width, 3)
    with pytest.raises(ValueError, match=r"no camera 'birdview'; shown: agentview, robot0_eye_in_hand; cameras=4"):
        lift.image("birdview", 84, 84)
    with pytest.raises(ValueError, match=r"lift: an image of 0x84 px; each must be in \[1, 2048\]"):
        lift.image("agentview", 0, 84)


def test_fast_rendering_shows_the_same_scene() -> None:
    pictures = []
    for fast in (True, False):
        world = LiftWorld(fast_rendering=fast)
        world.reset(0)
        pictures.append(world.image("agentview", 84, 84).astype(int))
        world.close()
    assert 0.0 < np.abs(pictures[0] - pictures[1]).mean() < 5.0


def test_nothing_is_said_at_the_end_of_a_process_that_drew() -> None:
    program = (
        "from auras_ros.sim.robosuite.lift import LiftWorld\nworlds = [LiftWorld(), LiftWorld()]\n"
        "for world in worlds:\n    world.reset(0)\n    world.image('agentview', 84, 84)\nworlds.pop()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
