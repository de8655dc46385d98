"""robosuite's worlds show what robomimic's own wrapper shows: the same numbers and pictures under the same names.

It runs in an environment of its own: `make test-robomimic`.

Guards: a world that calls its readings as robomimic does and means something else; a policy of robomimic's that sees
other pictures than those it was trained with.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("robosuite", reason="needs robosuite with robomimic: make test-robomimic")
pytest.importorskip("robomimic", reason="needs robosuite with robomimic: make test-robomimic")

from auras_ros.sim.robosuite.layout import flattened
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld
from auras_ros.sim.robosuite.world import SENSORS, RobosuiteWorld

CAMERAS = ("agentview", "robot0_eye_in_hand")
SEED = 7


@pytest.fixture(scope="module")
def utilities() -> Any:
    """robomimic's modules. It imports two packages that a headless CPU does without."""
    stand_ins = {"mujoco_py": {"builder": SimpleNamespace(MujocoException=Exception)}}
    stand_ins["egl_probe"] = {"get_available_devices": list}
    for name, contents in stand_ins.items():
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            vars(sys.modules[name]).update(contents)
    from robomimic.utils import env_utils, obs_utils

    kinds = {"rgb": [f"{each}_image" for each in CAMERAS], "low_dim": ["object"], "depth": [], "scan": []}
    obs_utils.initialize_obs_utils_with_obs_specs([{"obs": kinds}])
    return env_utils


@pytest.mark.parametrize("kind", [LiftWorld, CanWorld, SquareWorld])
def test_it_sees_what_robomimics_wrapper_sees(kind: type[RobosuiteWorld], utilities: Any) -> None:
    from auras_ros.sim.robosuite.env import _controller

    world = kind(objects=True, fast_rendering=False)
    theirs = utilities.create_env(
        utilities.EB.EnvType.ROBOSUITE_TYPE, kind.environment, render_offscreen=True, use_image_obs=True,
        robots="Panda",
        camera_names=list(CAMERAS), camera_heights=84, camera_widths=84, control_freq=20, seed=0, hard_reset=False,
        controller_configs=_controller(absolute=False),
    )  # fmt: skip
    theirs.env.rng.bit_generator.state = np.random.default_rng(SEED).bit_generator.state
    seen = theirs.reset()
    world.reset(SEED)
    gripper = 0.0
    for action in np.random.default_rng(0).uniform(-1, 1, (6, 7)):
        told = dict(world.state())
        assert told.pop("gripper") == gripper  # how it is driven: robomimic does not say
        for reading in (f"robot0_{sensor}" for sensor in SENSORS):
            for key, value in flattened(reading, seen[reading].tolist()).items():
                assert told.pop(key) == value, key
        np.testing.assert_array_equal(list(told.values()), seen["object"])
        for camera in CAMERAS:
            picture = np.moveaxis(seen[f"{camera}_image"], 0, -1) * 255
            np.testing.assert_array_equal(world.image(camera, 84, 84), np.round(picture).astype(np.uint8))
        seen = theirs.step(action)[0]
        result = world.step(action)
        gripper = action[-1]
        assert theirs.is_success()["task"] == result.success
    world.close()
