"""A robosuite task as robomimic makes it: by its metadata, with its own `EnvUtils`, in its environment.

What a data set or a checkpoint of robomimic names is played: any of robosuite's tasks, robots and controllers of poses.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from auras_ros.parameters import parameter
from auras_ros.sim.robosuite.layout import IMAGE_PX, cameras_of, channels_of
from auras_ros.sim.robosuite.metadata import TaskMetadata, read
from auras_ros.sim.robosuite.opengl import none_loaded
from auras_ros.sim.robosuite.world import RobosuiteWorld

if TYPE_CHECKING:
    from auras_ros.sim.robosuite.env import Simulation


@dataclass(frozen=True)
class RobomimicOptions:
    """What can be changed in a world of robomimic's. Raises ParameterError."""

    metadata: str = parameter(
        "",
        "JSON file: env_args of a data set, or env_metadata.json of a converted checkpoint; empty: robomimic's Lift",
        names_files=True,
    )
    image_px: int = parameter(IMAGE_PX, "height and width of the cameras, px", 16, 1024)
    fast_rendering: bool = parameter(
        False, "draw without multisampling, shadows and reflections; false: as in robomimic's data sets"
    )


class RobomimicWorld(RobosuiteWorld):
    """Actions are those of its arms' controllers; the state has the objects' readings too."""

    name = "robomimic"
    environment = ""
    views = ()
    sub_goals = ()
    options_class = RobomimicOptions  # type: ignore[assignment]

    @classmethod
    def check(cls) -> None:
        """Raises ModuleNotFoundError without robosuite and robomimic."""
        super().check()
        with none_loaded():
            importlib.import_module("auras_ros.sim.robosuite.robomimic_env")

    @classmethod
    def declares(cls, options: Any) -> Mapping[str, Any]:
        task = read(options.metadata)
        return {
            "control_dt_ms": task.control_dt_ms,
            "robots": len(task.robots),
            "cameras": cameras_of(task.cameras, options.image_px),
            "channels": channels_of(len(task.robots), task.absolute),
        }

    @property
    def _task(self) -> TaskMetadata:
        return read(self.options.metadata)  # type: ignore[attr-defined]

    def _shown(self) -> tuple[bool, bool]:
        return self._task.absolute, True

    def _simulated(self) -> Simulation:
        from auras_ros.sim.robosuite.robomimic_env import RobomimicSimulation

        made = RobomimicSimulation(self._task.environment)
        wanted, taken = len(self.channels), made.env.action_dim
        if taken != wanted:  # of a robot with two arms, or of another gripper
            raise ValueError(f"{self.name}: these robots take {taken} numbers, expected {wanted}")
        return made

    def _reached(self, env: Any, success: bool) -> Mapping[str, float]:
        return {}
