"""What training needs to know of a task: who shows it in which worlds, what its policy sees and does.

Stages, loops and exporter know nothing else; `pusht_task` and `lift_task` describe the tasks of the shipped policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from auras_ros.action import Contract
from auras_ros.observation import ObservationSpec
from auras_ros.observation.spec import StateSpec
from auras_ros.train.demonstrations import Demonstrations, Expert, Make

PIXEL_MEAN, PIXEL_STD = 0.8, 1 / 3  # of every camera
EXPERT, DRIFT, TAKEOVER = "expert", "drift", "takeover"  # demonstrations: alone, of things that move, taken over


@dataclass(frozen=True)
class Schedule:
    """How much of everything. drift_max: the fastest that things move by themselves, in the task's unit. `smoke` is for
    tests of the machinery, its policy is useless."""

    expert: int = 900
    drift: int = 300
    takeover: int = 300
    drift_max: float = 1.0
    encoder_steps: int = 1800
    encoder_more_steps: int = 600
    denoiser_steps: int = 3000
    denoiser_more_steps: int = 16_000
    decoder_steps: int = 10_000
    denoiser_other_steps: int = 4000  # for another number of noise levels
    flow_steps: int = 6000

    @classmethod
    def smoke(cls, drift_max: float = 1.0) -> Schedule:
        return cls(6, 3, 3, drift_max, 4, 2, 4, 4, 4, 4, 4)


@dataclass(frozen=True)
class TrainingTask:
    """name: of the checkpoint. sim: the world that it is evaluated in. Statistics of actions are the contract's bounds.

    keypoints: what the encoder of every camera learns to tell, float32 [N, K] in [-1, 1], of which 1 is `keypoint_size`
    in `keypoint_unit`. worlds: for each kind of demonstrations, given `Schedule.drift_max`, a maker of worlds.
    disturbance, margin: as in `DemonstrationSettings`. half: weights are stored in float16.
    """

    name: str
    sim: str
    spec: ObservationSpec
    contract: Contract
    keypoints: Callable[[Demonstrations], Tensor]
    keypoint_count: int
    keypoint_size: float
    keypoint_unit: str
    expert: Callable[[], Expert[Any]]
    worlds: Mapping[str, Callable[[float], Make[Any]]]
    schedule: Schedule
    disturbance: float
    margin: float = 0.0
    half: bool = False

    @property
    def cameras(self) -> tuple[str, ...]:
        return tuple(camera.name for camera in self.spec.cameras)

    @property
    def sensors(self) -> StateSpec:
        """The state that its policy sees."""
        assert self.spec.state is not None
        return self.spec.state

    @property
    def lag(self) -> int:
        """Control steps from one observed instant to the next."""
        return round(self.spec.dt_ms / self.contract.dt_ms)

    @property
    def bounds(self) -> tuple[list[float], list[float]]:
        """What -1 and 1 of the networks mean, for each channel."""
        channels = self.contract.channels
        return [each.lower for each in channels], [each.upper for each in channels]

    def scaled_state(self, state: NDArray[Any]) -> NDArray[Any]:
        """[..., S] in physical units -> [-1, 1], as the checkpoint's preprocessing does."""
        return scaled(state, self.sensors.first, self.sensors.second)

    def scaled_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        return scaled(actions, *self.bounds)


def scaled(values: NDArray[Any], low: ArrayLike, high: ArrayLike) -> NDArray[Any]:
    """[..., n] -> [-1, 1], in the values' own precision."""
    bottom, top = np.asarray(low, values.dtype), np.asarray(high, values.dtype)
    result: NDArray[Any] = (values - bottom) / ((top - bottom) / 2) - 1
    return result
