"""Push-T, headless, as a plain world: reset, step, look. Wraps gym-pusht and adds the drifting tee.

A static task hides stale observations: by the time a late action arrives, nothing has moved. The drifting variant
moves the tee a little each control step, reflecting at the borders, so that an old observation costs something.
Nothing here knows ROS or policies; rendering happens only when an image is asked for, and gym-pusht is imported by the
first table: rates are measured where there is none.
"""

from __future__ import annotations

import importlib
import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.pusht_things import Disc

SIZE_PX = 512.0
CONTROL_DT_MS = 100
IMAGE_PX = 96
DRIFT_LOW_PX, DRIFT_HIGH_PX = 120.0, 390.0
SUCCESS_COVERAGE = 0.95
DRIFT_SUCCESS_COVERAGE = 0.90


@dataclass(frozen=True)
class StepResult:
    """What one control step led to. `reward` is coverage over the success threshold, clipped to [0, 1]."""

    reward: float
    coverage: float
    success: bool


def check() -> None:
    """Raises ModuleNotFoundError without gym-pusht, so that long measurements fail early."""
    importlib.import_module("auras_ros.sim.pusht_env")


def default_coverage(drift_px: float) -> float:
    """Share of the goal that the tee must cover."""
    return SUCCESS_COVERAGE if drift_px == 0.0 else DRIFT_SUCCESS_COVERAGE


class PushTWorld:
    """One Push-T table.

    drift_px: how far the tee moves each control step, in pixels, in a direction drawn from the seed; 0 is the
    published task. success_coverage: default 0.95, and 0.90 for the drifting tee. Raises ModuleNotFoundError without
    gym-pusht.
    """

    def __init__(self, drift_px: float = 0.0, success_coverage: float | None = None) -> None:
        if not 0.0 <= drift_px < 20.0:
            raise ValueError(f"drift_px must be in [0, 20), got {drift_px}")
        self.drift_px = drift_px
        self.success_coverage = default_coverage(drift_px) if success_coverage is None else success_coverage
        from auras_ros.sim import pusht_env

        self._env = pusht_env.Env(obs_type="state")
        weakref.finalize(self, pusht_env.release, self._env)
        self._velocity = np.zeros(2)
        self.steps = 0
        self.things: tuple[Disc, ...] = ()  # in the picture alone, until they are changed

    def reset(self, seed: int) -> None:
        """Place agent and tee at random from `seed`; the drift direction is drawn from the same seed."""
        self._env.reset(seed=seed)
        direction = np.random.default_rng(seed).normal(size=2)
        self._velocity = direction * (self.drift_px / np.linalg.norm(direction))
        self.steps = 0

    def step(self, action: NDArray[np.float64]) -> StepResult:
        """Move the tee by its drift, then hold `action` (target position [x, y], px) for one control step."""
        target = np.asarray(action, dtype=np.float64)
        if target.shape != (2,) or not np.isfinite(target).all():
            raise ValueError(f"action must be two finite numbers, got {action!r}")
        if self.drift_px:
            self._drift()
        _, _, _, _, info = self._env.step(np.clip(target, 0.0, SIZE_PX))
        self.steps += 1
        coverage = float(info["coverage"])
        reward = float(np.clip(coverage / self.success_coverage, 0.0, 1.0))
        return StepResult(reward, coverage, coverage > self.success_coverage)

    def _drift(self) -> None:
        block = self._env.block
        for axis in range(2):
            if block.position[axis] + self._velocity[axis] <= DRIFT_LOW_PX:
                self._velocity[axis] = abs(self._velocity[axis])
            elif block.position[axis] + self._velocity[axis] >= DRIFT_HIGH_PX:
                self._velocity[axis] = -abs(self._velocity[axis])
        block.position = (block.position[0] + self._velocity[0], block.position[1] + self._velocity[1])
        self._env.space.reindex_shapes_for_body(block)

    def image(self, size_px: int = IMAGE_PX) -> NDArray[np.uint8]:
        """The table from above, uint8 RGB [size_px, size_px, 3]."""
        return self._env.image(size_px, self.things)

    @property
    def agent(self) -> NDArray[np.float64]:
        """Position of the pusher [x, y], px."""
        return np.array(self._env.agent.position, dtype=np.float64)

    @property
    def tee(self) -> NDArray[np.float64]:
        """Pose of the tee [x, y, angle], px and radians. Only experts and tests may look."""
        block = self._env.block
        return np.array([*block.position, block.angle], dtype=np.float64)

    @property
    def goal(self) -> NDArray[np.float64]:
        """Pose of the goal [x, y, angle], px and radians."""
        return np.array(self._env.goal_pose, dtype=np.float64)

    def close(self) -> None:
        self._env.close()
