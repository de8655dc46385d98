"""robosuite's tasks as worlds: seven numbers for each arm move its gripper, readings have robomimic's names.

The classes are in `lift` and `tasks`. What they have in common is here; robosuite itself is imported when a
world is made.
"""

from __future__ import annotations

import importlib
import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from auras_ros.parameters import parameter
from auras_ros.sim.robosuite.layout import IMAGE_PX, cameras_of, channels_of, flattened, robot_names
from auras_ros.sim.robosuite.opengl import none_loaded
from auras_ros.sim.world import StepResult, World, checked_action

if TYPE_CHECKING:
    from auras_ros.sim.robosuite.env import Simulation

SENSORS = ("joint_pos", "eef_pos", "eef_quat", "gripper_qpos")
MOST_CAMERAS, MOST_PX = 4, 2048


def _is_error(record: logging.LogRecord) -> bool:
    """robosuite warns of robots and settings that are not used here."""
    return record.levelno >= logging.ERROR


@dataclass(frozen=True)
class RobosuiteOptions:
    """What can be changed in every robosuite world. Raises ParameterError."""

    cameras: int = parameter(2, "how many of its cameras it shows: the first ones", 1, MOST_CAMERAS)
    image_px: int = parameter(IMAGE_PX, "height and width of the cameras, px", 16, 1024)
    absolute: bool = parameter(
        False, "actions are poses of the gripper in the world's frame, m and rad; false: increments, as in robomimic"
    )
    objects: bool = parameter(False, "the state contains the poses of the objects too, which no sensor knows")
    fast_rendering: bool = parameter(
        True, "draw without multisampling, shadows and reflections, in a third of the time; false: as robosuite draws"
    )


class RobosuiteWorld(World):
    """environment: robosuite's name for it. views: all of its cameras. shaped: robosuite has a reward for what is done
    on the way. Cameras and channels follow from the options.

    Raises ModuleNotFoundError without robosuite, which says how to install it.
    """

    control_dt_ms = 50
    environment: ClassVar[str]
    views: ClassVar[tuple[str, ...]]
    robots: ClassVar[int] = 1
    shaped: ClassVar[bool] = True
    options_class: ClassVar[type[RobosuiteOptions]] = RobosuiteOptions

    def __init__(self, **options: Any) -> None:
        self.check()
        self.options = self.options_class(**options)
        vars(self).update(self.declares(self.options))
        self._absolute, self._objects = self._shown()
        self._simulation = self._simulated()

    def _shown(self) -> tuple[bool, bool]:
        """Whether actions are poses, and whether the state has the objects' readings."""
        return self.options.absolute, self.options.objects

    def _simulated(self) -> Simulation:
        from auras_ros.sim.robosuite.env import Simulation, make

        return Simulation(make(self._environment(), self.robots, self._absolute, self.shaped))

    def _environment(self) -> str:
        return self.environment

    @classmethod
    def check(cls) -> None:
        """Raises ModuleNotFoundError without robosuite."""
        logging.getLogger("robosuite_logs").addFilter(_is_error)
        try:
            with none_loaded():
                importlib.import_module("auras_ros.sim.robosuite.env")
        except ModuleNotFoundError as error:
            how = f"auras doctor --sim {cls.name} --fix installs it in an environment of its own"
            raise ModuleNotFoundError(f"{cls.name}: robosuite is not installed ({error}): {how}") from error

    @classmethod
    def declares(cls, options: RobosuiteOptions) -> Mapping[str, Any]:
        return {
            "cameras": cameras_of(cls.views[: options.cameras], options.image_px),
            "channels": channels_of(cls.robots, options.absolute),
        }

    def reset(self, seed: int) -> None:
        """Place robots and objects at random from `seed`."""
        self._simulation.reset(seed)
        self._grips = np.zeros(self.robots)

    def step(self, action: NDArray[np.float64]) -> StepResult:
        """Move the goal of each arm's controller, and follow it for one control period. The reward is robosuite's,
        where it has none on the way that for success alone. Raises ActionError."""
        checked = checked_action(action, self.channels)
        self._disturb_before_step()
        reward, success = self._simulation.step(self._command(checked))
        self._grips = checked[self._per_robot - 1 :: self._per_robot]
        return StepResult(float(np.clip(reward, 0.0, 1.0)), success, self._reached(self._simulation.env, success))

    def _command(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """What robosuite's controllers take, seven numbers for each robot."""
        return action

    def _disturb_before_step(self) -> None:
        """What moves by itself."""

    @abstractmethod
    def _reached(self, env: Any, success: bool) -> Mapping[str, float]:
        """The sub-goals of now, from robosuite's environment."""

    @property
    def _per_robot(self) -> int:
        return len(self.channels) // self.robots

    def state(self) -> Mapping[str, float]:
        """The robots' readings under robomimic's names; under the channels' names how each gripper is driven (0 until
        it is first commanded, which leaves the fingers as they are) and, where actions are poses, its pose; with the
        option `objects` the readings of the objects too."""
        readings, told = self._simulation.readings, dict[str, float]()
        names = [f"{robot}_{sensor}" for robot in robot_names(self.robots) for sensor in SENSORS]
        for name in (*names, *(self._simulation.objects if self._objects else ())):
            told.update(flattened(name, np.atleast_1d(readings[name]).astype(float).tolist()))
        for robot in range(self.robots):
            *moves, grip = (each.name for each in self.channels[self._per_robot * robot :][: self._per_robot])
            if self._absolute:
                told.update(zip(moves, self._simulation.gripper_pose(robot), strict=False))  # no rotations: 3 of 6
            told[grip] = float(self._grips[robot])
        return told

    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        """What a camera sees now, upright. Raises ValueError for a camera that is not shown or a size beyond 2048 px,
        RuntimeError where there is no OpenGL."""
        names = [each.name for each in self.cameras]
        if camera not in names:
            more = f"; cameras={MOST_CAMERAS} shows all of its own" if len(names) < MOST_CAMERAS else ""
            raise ValueError(f"{self.name}: no camera {camera!r}; shown: {', '.join(names)}{more}")
        if not (1 <= height <= MOST_PX and 1 <= width <= MOST_PX):
            raise ValueError(f"{self.name}: an image of {height}x{width} px; each must be in [1, {MOST_PX}]")
        return self._simulation.image(camera, height, width, self.options.fast_rendering)

    def close(self) -> None:
        self._simulation.close()
