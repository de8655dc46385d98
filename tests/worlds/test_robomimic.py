"""robosuite's worlds show what robomimic's own wrapper shows: the same numbers and pictures under the same names.

It runs in an environment of its own: `make test-robomimic`.

Guards: a world that calls its readings as robomimic does and means something else; a policy of robomimic's that sees
other pictures than those it was trained with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("robosuite", reason="needs robosuite with robomimic: make test-robomimic")
pytest.importorskip("robomimic", reason="needs robosuite with robomimic: make test-robomimic")

from auras_ros.sim.robosuite.layout import flattened
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.robomimic import RobomimicWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld
from auras_ros.sim.robosuite.world import SENSORS, RobosuiteWorld

CAMERAS = ("agentview", "robot0_eye_in_hand")
SEED = 7


@pytest.fixture(scope="module")
def utilities() -> Any:
    """robomimic's module that makes environments, told which readings are pictures."""
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
            np.testing.assert_array_equal(world.image(camera, 84, 84), seen[f"{camera}_image"])
        seen = theirs.step(action)[0]
        result = world.step(action)
        gripper = action[-1]
        assert theirs.is_success()["task"] == result.success
    world.close()


@pytest.mark.usefixtures("utilities")
def test_its_own_lift_is_ours() -> None:
    """Made by `EnvUtils` of metadata as older data sets have them: the same numbers and pictures for the same seed."""
    ours, theirs = LiftWorld(objects=True, fast_rendering=False), RobomimicWorld()
    assert theirs.channels == ours.channels
    assert theirs.cameras == ours.cameras
    assert theirs.control_dt_ms == ours.control_dt_ms
    for seed in (SEED, SEED + 1):
        ours.reset(seed)
        theirs.reset(seed)
        for action in np.random.default_rng(seed).uniform(-1, 1, (6, 7)):
            wanted, got = ours.state(), theirs.state()
            assert wanted == {name: got[name] for name in wanted}
            np.testing.assert_array_equal(theirs.image("agentview", 84, 84), ours.image("agentview", 84, 84))
            (mine, yours) = (each.step(action) for each in (ours, theirs))
            assert (mine.reward, mine.success) == (yours.reward, yours.success)
    ours.close()
    theirs.close()
