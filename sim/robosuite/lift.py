"""robosuite's Lift, and what makes late actions cost something: a table that moves, a cube that jumps.

The moving table carries the cube by friction alone, back and forth on a straight line whose direction is the seed's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.parameters import checked, parameter
from auras_ros.sim.robosuite.layout import POINTS_DOWN_RAD, channels_of
from auras_ros.sim.robosuite.world import RobosuiteOptions, RobosuiteWorld

MOVING_TABLE_M_S = 0.2  # the highest at which the expert of increments kept 95 of 100 (docs/worlds.md)
TABLE_REACH_M = 0.1  # how far the table moves to each side
TABLE_TOP_M = 0.8
LIFTED_M = 0.04  # above where it lies: success, as in robosuite
CUBE_HALF_M = 0.02
JUMP_STEPS = (5, 25)  # control steps in which the cube may jump
PLACE_M = 0.13  # a jump ends within this of the table's centre, along both axes
REACH, GRASP, LIFT = "reach", "grasp", "lift"


@dataclass(frozen=True)
class LiftOptions(RobosuiteOptions):
    """What can be changed in Lift. Raises ParameterError."""

    table_m_s: float = parameter(
        0.0,
        "speed of the table, m/s; may be set while it runs, unless it is 0 at first: a table that stands still",
        0.0,
        0.5,
    )
    turns: bool = parameter(
        True,
        "actions turn the gripper; false: they have no rotation, absolute ones keep the gripper pointing down, and "
        "increments leave it as it is",
    )
    jump_m: float = parameter(0.0, "how far the cube jumps once, early in an episode, m; 0: never", 0.0, 0.13)


class LiftWorld(RobosuiteWorld):
    """Lift. It succeeds when the cube is 4 cm above the table."""

    name = "lift"
    environment = "Lift"
    views = ("agentview", "robot0_eye_in_hand", "frontview", "birdview")
    sub_goals = (REACH, GRASP, LIFT)
    live = ("table_m_s",)
    instruction = "lift the cube"
    options_class = LiftOptions
    options: LiftOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._table_m_s = self.options.table_m_s
        self._moving = self._table_m_s > 0.0

    @classmethod
    def declares(cls, options: RobosuiteOptions) -> Mapping[str, Any]:
        assert isinstance(options, LiftOptions)
        return {**super().declares(options), "channels": channels_of(cls.robots, options.absolute, options.turns)}

    def _command(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.options.turns:
            return action
        rotation = POINTS_DOWN_RAD if self.options.absolute else (0.0, 0.0, 0.0)
        return np.array([*action[:3], *rotation, action[3]])

    def _environment(self) -> str:
        return "LiftOnMovingTable" if self.options.table_m_s > 0.0 else self.environment

    def reset(self, seed: int) -> None:
        """Place robot and cube; the directions of table and jump, and when it jumps, are drawn from the same seed."""
        super().reset(seed)
        random = np.random.default_rng(seed)
        along, jump = random.uniform(0.0, 2 * np.pi, 2)
        self._to_jump = int(random.integers(*JUMP_STEPS, endpoint=True))
        self._jump = self.options.jump_m * np.array([np.cos(jump), np.sin(jump)])
        self._sign = 1.0
        if self._moving:
            model = self._simulation.env.sim.model
            model.jnt_axis[model.joint_name2id("table")] = (np.cos(along), np.sin(along), 0.0)

    def _disturb_before_step(self) -> None:
        if self._moving:
            data = self._simulation.env.sim.data
            place = float(data.get_joint_qpos("table"))
            if abs(place) >= TABLE_REACH_M:
                self._sign = -float(np.sign(place))
            data.set_joint_qvel("table", self._sign * self._table_m_s)
        self._to_jump -= 1
        if self._to_jump == 0 and self.options.jump_m and not self._grasped(self._simulation.env):
            self._let_jump()

    def _let_jump(self) -> None:
        """In its direction or, where that leaves the table's middle, against it."""
        data = self._simulation.env.sim.data
        pose: NDArray[np.float64] = data.get_joint_qpos("cube_joint0").copy()
        ahead = pose[:2] + self._jump
        pose[:2] = ahead if np.abs(ahead).max() <= PLACE_M else pose[:2] - self._jump
        data.set_joint_qpos("cube_joint0", pose)

    def _grasped(self, env: Any) -> bool:
        return bool(env._check_grasp(gripper=env.robots[0].gripper, object_geoms=env.cube))

    def _reached(self, env: Any, success: bool) -> Mapping[str, float]:
        cube = env.sim.data.body_xpos[env.cube_body_id]
        distance = np.linalg.norm(env.sim.data.site_xpos[env.robots[0].eef_site_id["right"]] - cube)
        height = (cube[2] - TABLE_TOP_M - CUBE_HALF_M) / (LIFTED_M - CUBE_HALF_M)
        return {
            REACH: float(1.0 - np.tanh(10.0 * distance)),
            GRASP: float(self._grasped(env)),
            LIFT: 1.0 if success else float(np.clip(height, 0.0, 1.0)),
        }

    def disturb(self, option: str, value: Any) -> None:
        """Let the table move faster or slower. Raises ParameterError, ValueError if it is one that stands still."""
        if option not in self.live:
            super().disturb(option, value)
        known = {each.name: each for each in fields(self.options)}
        speed = checked(self.name, known[option], value)
        if speed and not self._moving:
            raise ValueError(f"{self.name}: {option} was 0 at first: this table stands still; make it with a speed")
        self._table_m_s = speed
