"""robomimic's wrapper of a robosuite environment. To import this is to need both.

Pictures are not the wrapper's, which draws all of them in every step: `Simulation` draws the same ones when somebody
looks (`tests/worlds/test_robomimic.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from robomimic.utils import env_utils, obs_utils
from robosuite.controllers.composite.composite_controller_factory import refactor_composite_controller_config

from auras_ros.sim.robosuite.env import Simulation

OBJECT = "object"  # robomimic's key of all objects' readings, one after the other


class RobomimicSimulation(Simulation):
    """metadata: as `env_utils.create_env_from_metadata` takes them; the model is made once (docs/worlds.md)."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        obs_utils.initialize_obs_utils_with_obs_specs([{"obs": {"low_dim": [OBJECT]}}])
        options = {"seed": 0, **metadata["env_kwargs"], "hard_reset": False}  # pictures are drawn of the first model
        options["controller_configs"] = _composite(options["controller_configs"], options["robots"])
        made = {**metadata, "env_kwargs": options}
        self.wrapper = env_utils.create_env_from_metadata(made, render_offscreen=False, use_image_obs=False)
        super().__init__(self.wrapper.env)

    def reset(self, seed: int) -> None:
        self._seed(seed)
        self._read(self.wrapper.reset())

    def step(self, action: NDArray[np.float64]) -> tuple[float, bool]:
        seen, reward, _, _ = self.wrapper.step(action)
        self._read(seen)
        return float(reward), bool(self.wrapper.is_success()["task"])

    def _read(self, seen: dict[str, Any]) -> None:
        """robomimic's observation, with the objects' readings under robosuite's names."""
        values, at = seen[OBJECT], 0
        self.readings = dict(seen)
        for name in self.objects:
            size = np.atleast_1d(self.env._observables[name].obs).size
            self.readings[name] = values[at : at + size]
            at += size


def _composite(configs: Any, robots: Sequence[str]) -> list[Any]:
    """A controller for each robot as robosuite 1.5 takes it, of those that older versions took."""
    each = configs if isinstance(configs, list) else [configs] * len(robots)
    return [refactor_composite_controller_config(one, name, ["right"]) for one, name in zip(each, robots, strict=True)]
