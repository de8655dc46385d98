"""SimplerEnv: tasks of the Google robot and of WidowX as they were evaluated in reality, by its own interface.

A family of worlds: `simpler:google_robot_pick_coke_can`. It is not on PyPI and wants old packages, so it runs in an
environment that a person makes (`environments.SIMPLER`). docs/worlds.md says what of it was run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.parameters import ParameterError, parameter
from auras_ros.sim.pictures import resized
from auras_ros.sim.rotations import euler, seen_from
from auras_ros.sim.simpler.actions import CONVENTIONS, channels
from auras_ros.sim.simpler.tasks import TASKS
from auras_ros.sim.simpler.variants import VARIANTS, build_values, reset_values
from auras_ros.sim.world import StepResult, World, checked_action
from auras_ros.spelling import nearest

SHADERS = ("ibl", "rt")
POSE = tuple(f"tcp_{name}" for name in ("x", "y", "z", "roll", "pitch", "yaw"))


@dataclass(frozen=True)
class SimplerOptions:
    """Raises ParameterError."""

    task: str = parameter("google_robot_pick_coke_can", "one of SimplerEnv's 25 tasks: auras list tasks")
    variant: str = parameter("", "of the variant aggregation, such as base or darker; empty: visual matching")
    convention: str = parameter(
        "openvla",
        "what an action is: openvla (increments of position and Euler angles, share to which the gripper is to open) "
        "or native (SimplerEnv's own numbers)",
    )
    shader: str = parameter("ibl", "of the renderer: ibl, or rt (ray tracing, as published for drawers: needs a GPU)")
    terminate: bool = parameter(
        False, "an eighth channel, terminate: above 0 goes to the next sub-task, and ends the episode in the last one"
    )

    def __post_init__(self) -> None:
        _known("task", self.task, tuple(TASKS))
        _known("convention", self.convention, tuple(CONVENTIONS))
        _known("shader", self.shader, SHADERS)
        published = VARIANTS.get(TASKS[self.task].kind, {})
        if self.variant and not published:
            raise ParameterError(f"simpler: variant: none is published for {self.task}, only visual matching")
        if self.variant:
            _known("variant", self.variant, tuple(published))


def _known(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        meant = nearest(given, known)
        hint = f"did you mean {meant}?" if meant else f"known: {', '.join(known)}"
        raise ParameterError(f"simpler: {name}: no '{given}'; {hint}")


class SimplerWorld(World):
    """One environment. The options are those of `SimplerOptions`. Raises ModuleNotFoundError without SimplerEnv."""

    name = "simpler"

    def __init__(self, **options: Any) -> None:
        made = SimplerOptions(**options)
        vars(self).update(self.declares(made))
        self._task, self._variant = TASKS[made.task], bool(made.variant)
        self._actions = CONVENTIONS[made.convention](self._task.robot)
        self.check()
        self._env = _make(made)
        self._base = self._env.unwrapped  # its methods are not forwarded by every version's wrappers
        self._picture = importlib.import_module("simpler_env.utils.env.observation_utils")
        self._instruction = ""

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        return tuple(TASKS)

    @classmethod
    def declares(cls, options: SimplerOptions) -> Mapping[str, Any]:
        task = TASKS[options.task]
        return {
            "control_dt_ms": task.robot.control_dt_ms,
            "cameras": (task.robot.camera,),
            "channels": channels(options.convention, options.terminate),
            "sub_goals": tuple(each.name for each in task.goals),
        }

    @classmethod
    def check(cls) -> None:
        """Raises ModuleNotFoundError of `simpler_env`, also for a package that it lacks, which the text names."""
        try:
            importlib.import_module("simpler_env")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"simpler: {error}", name="simpler_env") from error

    def reset(self, seed: int) -> None:
        """A start that SimplerEnv's evaluations have, in their order (`variants.GRIDS`), or one that it draws
        from the seed."""
        self._seen, _ = self._env.reset(seed=seed, options=reset_values(self._task, self._variant, seed))
        self._told()
        self._actions.reset()

    def step(self, action: NDArray[np.float64]) -> StepResult:
        """One control step, after which the instruction is read again: it is another in the next sub-task. The reward
        is 1 for success. Raises ActionError."""
        values = checked_action(action, self.channels)
        over = bool(values[7:].any()) and self._next_sub_task()
        self._seen, reward, success, truncated, info = self._env.step(self._actions.native(values[:7]))
        if self._told():
            self._actions.reset()
        stats = info.get("episode_stats", {})
        goals = {each.name: each.share(stats) for each in self._task.goals}
        ended = "" if success else "time limit" if truncated else "terminated by the policy" if over else ""
        numbers = {name: float(value) for name, value in stats.items()}  # drawers give text, such as 0.150
        return StepResult(min(1.0, max(0.0, float(reward))), bool(success), goals, ended, numbers)

    def _next_sub_task(self) -> bool:
        """Whether there is none, so that the episode is over."""
        if self._base.is_final_subtask():
            return True
        self._base.advance_to_next_subtask()
        return False

    def _told(self) -> bool:
        """Whether the instruction is another one than before."""
        before, self._instruction = self._instruction, str(self._base.get_language_instruction())
        return self._instruction != before

    def state(self) -> Mapping[str, float]:
        """The pose of the tool in the frame of the robot's base (m, rad), the joints (rad, of fingers m or rad), and
        `gripper`, as the channel has it."""
        robot, agent = self._task.robot, self._seen["agent"]
        at, turn = seen_from(agent["base_pose"], self._seen["extra"]["tcp_pose"])
        joints = [each.name for each in self._base.agent.robot.get_active_joints()]
        state = dict(zip([*POSE, *joints], map(float, [*at, *euler(turn), *agent["qpos"]]), strict=True))
        opened = (state[robot.finger] - robot.closed) / (robot.opened - robot.closed)
        position = self._actions.gripper(min(1.0, max(0.0, opened)))
        return state if position is None else {**state, "gripper": position}

    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        """In another size by the mean of the pixels, as the evaluation of OpenVLA makes it."""
        robot = self._task.robot
        if camera != robot.camera.name:
            raise ValueError(f"simpler: the camera of this task is {robot.camera.name!r}, not {camera!r}")
        picture = self._picture.get_image_from_maniskill2_obs_dict(self._base, self._seen, camera_name=robot.uid)
        return resized(picture, height, width)

    @property
    def instruction(self) -> str:
        return self._instruction

    def close(self) -> None:
        self._env.close()


def _make(options: SimplerOptions) -> Any:
    """The environment. Prepackaged settings replace `shader_dir`, not `render_config`. `simpler_env.make` keeps what it
    is given for later calls, so every call gives the same names."""
    simpler_env, shader = importlib.import_module("simpler_env"), options.shader
    drawn = {
        "shader_dir": shader,
        "render_config": {"camera_shader_dir": shader, "viewer_shader_dir": shader},
    }
    if not options.variant:
        return simpler_env.make(options.task, **drawn)
    task = TASKS[options.task]
    variant = VARIANTS[task.kind][options.variant]
    env, values = simpler_env.ENVIRONMENT_MAP[options.task]
    build = importlib.import_module("simpler_env.utils.env.env_builder").build_maniskill2_env
    return build(variant.env or env, **{**values, **build_values(task, variant), **drawn})
