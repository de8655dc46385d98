"""Push-T as a task to train for: a planning expert, one camera from above, positions on the whole table."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from auras_ros.action import Channel, ChannelKind, Contract, HoldPolicy
from auras_ros.observation import CameraSpec, ObservationSpec, StateSpec
from auras_ros.sim.pusht.world import CAMERA, CONTROL_DT_MS, IMAGE_PX, SIZE_PX, PushTWorld
from auras_ros.train.demonstrations import Demonstrations, Make
from auras_ros.train.push_table import build_push_table, corners
from auras_ros.train.pusht_expert import PushExpert
from auras_ros.train.task import DRIFT, EXPERT, PIXEL_MEAN, PIXEL_STD, TAKEOVER, Schedule, TrainingTask, scaled

AXES = ("agent_x", "agent_y")
HALF_PX = SIZE_PX / 2
MAX_RATE_PX_S = 4000.0
DISTURBANCE_PX, WALL_PX = 20.0, 15.0  # of the expert's executed targets; how far they stay from the table's edge
DRIFT_COVERAGE = 0.92


def keypoints(data: Demonstrations) -> Tensor:
    """The corners of the tee, whose pose is the truth, and the agent, [N, 18]."""
    tee = np.stack([corners(pose) for pose in data.truth.astype(np.float64)]).reshape(len(data.truth), -1)
    return torch.from_numpy(scaled(np.concatenate([tee, data.state], 1), 0.0, SIZE_PX)).float()


def expert() -> PushExpert:
    return PushExpert(build_push_table())


def static_table(random: np.random.Generator) -> PushTWorld:
    """The published task."""
    return PushTWorld()


def drifting_table(drift_max_px: float, random: np.random.Generator) -> PushTWorld:
    """One whose tee drifts by 0.1 px to this a step."""
    return PushTWorld(float(random.uniform(0.1, drift_max_px)), DRIFT_COVERAGE)


def _static(drift_max_px: float) -> Make[PushTWorld]:
    return static_table


def _drifting(drift_max_px: float) -> Make[PushTWorld]:
    return partial(drifting_table, drift_max_px)


def _channel(axis: str) -> Channel:
    """The pusher's target position."""
    return Channel(axis, "px", ChannelKind.ABSOLUTE, 0.0, SIZE_PX, "table", MAX_RATE_PX_S, HoldPolicy.LAST)


PUSHT = TrainingTask(
    name="pusht",
    sim="pusht",
    spec=ObservationSpec(
        (CameraSpec(CAMERA, IMAGE_PX, IMAGE_PX, mean=(PIXEL_MEAN,) * 3, std=(PIXEL_STD,) * 3),),
        StateSpec(AXES, "min_max", (0.0, 0.0), (SIZE_PX, SIZE_PX)),
        history=2,
        dt_ms=CONTROL_DT_MS,
    ),
    contract=Contract(tuple(_channel(axis) for axis in AXES), CONTROL_DT_MS),
    keypoints=keypoints,
    keypoint_count=18,
    keypoint_size=HALF_PX,
    keypoint_unit="px",
    expert=expert,
    worlds={EXPERT: _static, DRIFT: _drifting, TAKEOVER: _static},
    schedule=Schedule(),
    disturbance=DISTURBANCE_PX,
    margin=WALL_PX,
)
