"""A stand-in for Lift: its cameras, channels and readings, a gripper that goes where it is told, and no physics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.robosuite.layout import cameras_of, channels_of, flattened
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.world import StepResult, World, checked_action

STEP_M = 0.03  # the gripper's longest way in a control step
CLOSING_STEPS, NEAR_M, LIFTED_M = 4, 0.02, 0.86


class ToyLift(World):
    """The cube slides along y until it is held."""

    name = "lift"
    control_dt_ms = LiftWorld.control_dt_ms
    cameras = cameras_of(LiftWorld.views[:2])
    channels = channels_of(1, absolute=True, turns=False)
    live = ("table_m_s",)

    def __init__(self, **options: Any) -> None:
        self.speed_m_s, self.objects = options["table_m_s"], options["objects"]
        self.cameras = cameras_of(LiftWorld.views[: options["cameras"]])

    @classmethod
    def check(cls) -> None:
        pass

    def reset(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.hand, self.closing = np.array([-0.1, 0.0, 1.0]), 0
        self.cube = np.array([*random.uniform(-0.03, 0.03, 2), 0.82])

    def step(self, action: NDArray[np.float64]) -> StepResult:
        *goal, grip = checked_action(action, self.channels)
        moved = np.clip(goal - self.hand, -STEP_M, STEP_M)
        self.hand = self.hand + moved
        self.closing = self.closing + 1 if grip > 0 else 0
        held = self.closing >= CLOSING_STEPS and float(np.linalg.norm(self.hand - moved - self.cube)) < NEAR_M
        self.cube = self.cube + (moved if held else [0.0, self.speed_m_s * self.control_dt_ms / 1e3, 0.0])
        return StepResult(0.0, bool(self.cube[2] > LIFTED_M))

    def state(self) -> Mapping[str, float]:
        fingers = 0.0 if self.closing else 0.04
        told = flattened("robot0_joint_pos", [0.0] * 7) | flattened("robot0_eef_pos", self.hand.tolist())
        told |= flattened("robot0_gripper_qpos", [fingers, -fingers])
        if self.objects:
            told |= flattened("cube_pos", self.cube.tolist()) | flattened("cube_quat", [0.0, 0.0, 0.0, 1.0])
        return told | dict(zip("xyz", self.hand.tolist(), strict=True))

    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        """Where the cube is, and from the gripper, as a bright square."""
        own = self.cube if camera == LiftWorld.views[0] else self.cube - self.hand
        row, column = (int(np.clip(42 + 150 * own[axis], 4, 79)) for axis in (0, 1))
        picture = np.full((height, width, 3), (40, 60, 90), np.uint8)
        picture[row - 4 : row + 4, column - 4 : column + 4] = (220, 30, 30)
        return picture

    def disturb(self, option: str, value: Any) -> None:
        self.speed_m_s = value

    def close(self) -> None:
        pass
