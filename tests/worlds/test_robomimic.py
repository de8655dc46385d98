"""robosuite's worlds show what robomimic's own wrapper shows: the same numbers and pictures under the same names.

It runs in an environment of its own: `make test-robomimic`.

Guards: a world that calls its readings as robomimic does and means something else; a policy of robomimic's that sees
other pictures than those it was trained with.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("robosuite", reason="needs robosuite with robomimic: make test-robomimic")
pytest.importorskip("robomimic", reason="needs robosuite with robomimic: make test-robomimic")

from robomimic.utils import env_utils, obs_utils

from auras_ros.sim.robosuite.layout import flattened, robot_names
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.metadata import LIFT
from auras_ros.sim.robosuite.robomimic import RobomimicWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld, ToolHangWorld, TransportWorld
from auras_ros.sim.robosuite.world import SENSORS, RobosuiteWorld

SEED = 7


KINDS = [LiftWorld, CanWorld, SquareWorld, ToolHangWorld, TransportWorld]


@pytest.mark.parametrize("kind", KINDS)
def test_it_sees_what_robomimics_wrapper_sees(kind: type[RobosuiteWorld]) -> None:
    from auras_ros.sim.robosuite.env import _controller

    world, robots = kind(objects=True, fast_rendering=False), robot_names(kind.robots)
    cameras = kind.views[:2]
    kinds = {"rgb": [f"{each}_image" for each in cameras], "low_dim": ["object"], "depth": [], "scan": []}
    obs_utils.initialize_obs_utils_with_obs_specs([{"obs": kinds}])
    theirs = env_utils.create_env(
        env_utils.EB.EnvType.ROBOSUITE_TYPE, kind.environment, render_offscreen=True, use_image_obs=True,
        robots=["Panda"] * kind.robots,
        camera_names=list(cameras), camera_heights=84, camera_widths=84, control_freq=20, seed=0, hard_reset=False,
        controller_configs=[_controller(absolute=False) for _ in robots],
    )  # fmt: skip
    theirs.env.rng.bit_generator.state = np.random.default_rng(SEED).bit_generator.state
    seen = theirs.reset()
    world.reset(SEED)
    grips = [each.name for each in world.channels[6::7]]
    driven = dict.fromkeys(grips, 0.0)
    for action in np.random.default_rng(0).uniform(-1, 1, (6, len(world.channels))):
        told = dict(world.state())
        assert {name: told.pop(name) for name in grips} == driven  # how they are driven: robomimic does not say
        for reading in (f"{robot}_{sensor}" for robot in robots for sensor in SENSORS):
            for key, value in flattened(reading, seen[reading].tolist()).items():
                assert told.pop(key) == value, key
        np.testing.assert_array_equal(list(told.values()), seen["object"])
        for camera in cameras:
            np.testing.assert_array_equal(world.image(camera, 84, 84), seen[f"{camera}_image"])
        seen = theirs.step(action)[0]
        result = world.step(action)
        driven = dict(zip(grips, action[6::7].tolist(), strict=True))
        assert theirs.is_success()["task"] == result.success
    world.close()


def test_robomimics_lift_is_ours() -> None:
    """Without metadata, in the format of older data sets."""
    compare(LiftWorld(objects=True, fast_rendering=False), RobomimicWorld())


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_by_its_metadata_is_ours(kind: type[RobosuiteWorld], tmp_path: Path) -> None:
    """Made by `EnvUtils`: the same numbers and pictures for the same seed."""
    told = deepcopy(LIFT)
    options = told["env_kwargs"]
    told["env_name"], options["robots"] = kind.environment, ["Panda"] * kind.robots
    options["controller_configs"] = [options["controller_configs"]] * kind.robots
    options["camera_names"], options["reward_shaping"] = list(kind.views[:2]), kind.shaped
    (tmp_path / "env.json").write_text(json.dumps(told))
    ours = kind(objects=True, fast_rendering=False, cameras=2)
    compare(ours, RobomimicWorld(metadata=str(tmp_path / "env.json")))


def compare(ours: RobosuiteWorld, theirs: RobomimicWorld) -> None:
    assert theirs.channels == ours.channels
    assert theirs.cameras == ours.cameras
    assert theirs.control_dt_ms == ours.control_dt_ms
    for seed in (SEED, SEED + 1):
        ours.reset(seed)
        theirs.reset(seed)
        for action in np.random.default_rng(seed).uniform(-1, 1, (6, len(ours.channels))):
            wanted, got = ours.state(), theirs.state()
            assert wanted == {name: got[name] for name in wanted}
            camera = ours.cameras[0].name
            np.testing.assert_array_equal(theirs.image(camera, 84, 84), ours.image(camera, 84, 84))
            (mine, yours) = (each.step(action) for each in (ours, theirs))
            assert (mine.reward, mine.success) == (yours.reward, yours.success)
    ours.close()
    theirs.close()
