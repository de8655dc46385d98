"""Push-T, headless, as a plain world: reset, step, look. Wraps gym-pusht and adds the drifting tee.

A static task hides stale observations: by the time a late action arrives, nothing has moved. The drifting variant
moves the tee a little each control step, reflecting at the borders, so that an old observation costs something; in
another one the tee jumps once.
Nothing here knows ROS or policies; rendering happens only when an image is asked for, and gym-pusht is imported by the
first table: rates are measured where there is none.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.parameters import parameter
from auras_ros.sim.pusht.things import Disc, read_things
from auras_ros.sim.world import ActionChannel, StepResult, World, WorldCamera, checked_action

SIZE_PX = 512.0
CONTROL_DT_MS = 100
IMAGE_PX = 96
CAMERA = "top"
DRIFT_LOW_PX, DRIFT_HIGH_PX = 120.0, 390.0
JUMP_STEPS = (10, 40)  # control steps in which the tee may jump
SUCCESS_COVERAGE = 0.95
DRIFT_SUCCESS_COVERAGE = 0.90
COVERAGE = "coverage"  # the one sub-goal: the covered share of the goal


@dataclass(frozen=True)
class PushTOptions:
    """What can be changed on a table. Raises ParameterError."""

    drift_px: float = parameter(0.0, "drift of the tee each control step, px; 0: the published task", 0.0, 19.0)
    success_coverage: float = parameter(SUCCESS_COVERAGE, "covered share of the goal: success", 0.05, 0.999)
    things: str = parameter(
        "",
        "coloured discs on the table, which the picture alone shows, px of the table; may be set while it runs: a JSON "
        'list such as [{"x": 256, "y": 256, "radius": 16, "rgb": [220, 40, 40]}]',
    )
    jump_px: float = parameter(0.0, "how far the tee jumps once, after one to four seconds, px", 0.0, 150.0)

    def __post_init__(self) -> None:
        read_things(self.things)


def default_coverage(drift_px: float) -> float:
    """Share of the goal that the tee must cover."""
    return SUCCESS_COVERAGE if drift_px == 0.0 else DRIFT_SUCCESS_COVERAGE


class PushTWorld(World):
    """One Push-T table.

    drift_px: how far the tee moves each control step, in pixels, in a direction drawn from the seed; 0 is the
    published task. success_coverage: default 0.95, and 0.90 for the drifting tee. things, jump_px: as `PushTOptions`
    describes them. Raises ModuleNotFoundError without gym-pusht.
    """

    name = "pusht"
    frame = "table"
    control_dt_ms = CONTROL_DT_MS
    # It looks straight down. With these intrinsics a point of the table, px, lies at depth 1.
    cameras = (WorldCamera(CAMERA, IMAGE_PX, IMAGE_PX, (IMAGE_PX / SIZE_PX, IMAGE_PX / SIZE_PX, 0.0, 0.0)),)
    channels = tuple(ActionChannel(axis, "px", 0.0, SIZE_PX) for axis in ("agent_x", "agent_y"))
    sub_goals = (COVERAGE,)
    live = ("things",)

    def __init__(
        self, drift_px: float = 0.0, success_coverage: float | None = None, things: str = "", jump_px: float = 0.0
    ) -> None:
        if not 0.0 <= drift_px < 20.0:
            raise ValueError(f"drift_px must be in [0, 20), got {drift_px}")
        self.drift_px, self.jump_px = drift_px, jump_px
        self.success_coverage = default_coverage(drift_px) if success_coverage is None else success_coverage
        from auras_ros.sim.pusht import env

        self._env = env.Env(obs_type="state")
        weakref.finalize(self, env.release, self._env)
        self._velocity, self._jump, self._to_jump = np.zeros(2), np.zeros(2), 0
        self.things: tuple[Disc, ...] = read_things(things)  # in the picture alone

    @staticmethod
    def check() -> None:
        """Raises ModuleNotFoundError without gym-pusht."""
        importlib.import_module("auras_ros.sim.pusht.env")

    def reset(self, seed: int) -> None:
        """Place agent and tee at random from `seed`; drift and jump are drawn from the same seed."""
        self._env.reset(seed=seed)
        random = np.random.default_rng(seed)
        drift, jump = random.normal(size=2), random.normal(size=2)
        self._velocity = drift * (self.drift_px / np.linalg.norm(drift))
        self._jump = jump * (self.jump_px / np.linalg.norm(jump))
        self._to_jump = int(random.integers(*JUMP_STEPS, endpoint=True))

    def step(self, action: NDArray[np.float64]) -> StepResult:
        """Move the tee by its drift or jump, then hold `action` (target position [x, y], px) for one control step. The
        reward is the coverage over its threshold, at most 1. Raises ActionError."""
        target = checked_action(action, self.channels)
        if self.drift_px:
            self._drift()
        self._to_jump -= 1
        if self.jump_px and self._to_jump == 0:
            self._let_jump()
        _, _, _, _, info = self._env.step(target)
        coverage = float(info["coverage"])
        reward = float(np.clip(coverage / self.success_coverage, 0.0, 1.0))
        return StepResult(reward, coverage > self.success_coverage, {COVERAGE: coverage})

    def _drift(self) -> None:
        block = self._env.block
        for axis in range(2):
            if block.position[axis] + self._velocity[axis] <= DRIFT_LOW_PX:
                self._velocity[axis] = abs(self._velocity[axis])
            elif block.position[axis] + self._velocity[axis] >= DRIFT_HIGH_PX:
                self._velocity[axis] = -abs(self._velocity[axis])
        self._put(block.position[0] + self._velocity[0], block.position[1] + self._velocity[1])

    def _let_jump(self) -> None:
        """In its direction or against it: to where the pusher is further away, not beyond the drift's borders."""
        ways = [np.clip(self.tee[:2] + way, DRIFT_LOW_PX, DRIFT_HIGH_PX) for way in (self._jump, -self._jump)]
        self._put(*max(ways, key=lambda place: float(np.linalg.norm(place - self.agent))).tolist())

    def _put(self, x: float, y: float) -> None:
        block = self._env.block
        block.position = (x, y)
        self._env.space.reindex_shapes_for_body(block)

    def state(self) -> Mapping[str, float]:
        """The pusher's position, px."""
        x, y = self.agent.tolist()
        return {"agent_x": x, "agent_y": y}

    def image(self, camera: str = CAMERA, height: int = IMAGE_PX, width: int = IMAGE_PX) -> NDArray[np.uint8]:
        """The table from above, uint8 RGB [height, width, 3]. Raises ValueError for another camera or another shape
        than a square."""
        if camera != CAMERA or height != width:
            raise ValueError(f"Push-T: its camera is {CAMERA!r} and square, not {camera!r} of {height}x{width}")
        return self._env.image(height, self.things)

    def disturb(self, option: str, value: Any) -> None:
        """Lay other `things` on the table. Raises ParameterError."""
        if option not in self.live:
            super().disturb(option, value)
        self.things = read_things(value)

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
