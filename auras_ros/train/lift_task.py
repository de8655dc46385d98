"""Lift as a task to train for: the scripted expert, two cameras or another number, positions of a gripper that points
down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from auras_ros.action import Channel, ChannelKind, Contract, HoldPolicy
from auras_ros.observation import CameraSpec, ObservationSpec, StateSpec
from auras_ros.sim.robosuite.layout import IMAGE_PX
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.world import World
from auras_ros.sim.worlds import find
from auras_ros.train.demonstrations import Demonstrations, Make
from auras_ros.train.lift_expert import LiftPositionExpert
from auras_ros.train.task import DRIFT, EXPERT, PIXEL_MEAN, PIXEL_STD, TAKEOVER, Schedule, TrainingTask

SENSORS = (*(f"robot0_eef_pos_{axis}" for axis in "xyz"), "robot0_gripper_qpos_0", "robot0_gripper_qpos_1")
LOW_M, HIGH_M = (-0.375, -0.375, 0.75), (0.375, 0.375, 1.25)  # of the gripper
FINGER_M = 0.04  # of each finger, open
MAX_RATE_M_S = 4.0  # from below the gripper to above it in one step
TELLING_M = 0.2  # size of 1 of the keypoints
TABLE_M = (0.0, 0.0, 0.85)  # where they are 0
STILL_M_S = 0.02  # the slowest table that moves
DISTURBANCE_M = 0.04
INSTANTS_MS = 100.0  # two control steps: the cube's speed is a difference of two pictures


def keypoints(data: Demonstrations) -> Tensor:
    """Where the cube is on the table, and from the gripper, [N, 6]: the first is what a camera that stands still sees,
    the second what one in the hand does."""
    cube, hand = data.truth[:, :3].astype(np.float64), data.state[:, :3]
    return torch.from_numpy(np.concatenate([cube - TABLE_M, cube - hand], 1) / TELLING_M).float()


def _still(cameras: int, fastest_m_s: float) -> Make[World]:
    """One world for all episodes: a process."""
    world = find(f"lift:objects=true,cameras={cameras}").make()
    return lambda random: world


def _moving(cameras: int, fastest_m_s: float) -> Make[World]:
    """The same, with another speed of the table for each episode."""
    world = find(f"lift:objects=true,cameras={cameras},table_m_s={fastest_m_s:g}").make()

    def table(random: np.random.Generator) -> World:
        world.disturb("table_m_s", float(random.uniform(STILL_M_S, fastest_m_s)))
        return world

    return table


def _channels() -> tuple[Channel, ...]:
    """Where the gripper is to go, in the world's frame, and whether it is to close."""
    bounds = zip("xyz", LOW_M, HIGH_M, strict=True)
    moves = [Channel(axis, "m", ChannelKind.ABSOLUTE, low, high, "world", MAX_RATE_M_S) for axis, low, high in bounds]
    return (*moves, Channel("gripper", "(open to closed)", ChannelKind.GRIPPER, -1.0, 1.0, hold=HoldPolicy.LAST))


def _worlds(cameras: int) -> Mapping[str, Callable[[float], Make[World]]]:
    still, moving = partial(_still, cameras), partial(_moving, cameras)
    return {EXPERT: still, DRIFT: moving, TAKEOVER: moving}


def _cameras(count: int) -> tuple[CameraSpec, ...]:
    mean, std = (PIXEL_MEAN,) * 3, (PIXEL_STD,) * 3
    return tuple(CameraSpec(name, IMAGE_PX, IMAGE_PX, mean=mean, std=std) for name in LiftWorld.views[:count])


LIFT = TrainingTask(
    name="lift",
    sim="lift",
    spec=ObservationSpec(
        _cameras(2),
        StateSpec(SENSORS, "min_max", (*LOW_M, 0.0, -FINGER_M), (*HIGH_M, FINGER_M, 0.0)),
        history=2,
        dt_ms=INSTANTS_MS,
    ),
    contract=Contract(_channels(), LiftWorld.control_dt_ms),
    keypoints=keypoints,
    keypoint_count=6,
    keypoint_size=1e3 * TELLING_M,
    keypoint_unit="mm",
    expert=LiftPositionExpert,
    worlds=_worlds(2),
    schedule=Schedule(
        expert=120,
        drift=280,
        takeover=60,
        drift_max=0.2,
        encoder_steps=1200,
        encoder_more_steps=300,
        denoiser_steps=1000,
        denoiser_more_steps=4000,
        flow_steps=4000,
    ),
    disturbance=DISTURBANCE_M,
    half=True,
)


def with_cameras(count: int) -> TrainingTask:
    """Lift for a policy that sees the first so many of its cameras."""
    return replace(
        LIFT,
        name=f"lift-cameras-{count}",
        sim=f"lift:cameras={count}",
        spec=replace(LIFT.spec, cameras=_cameras(count)),
        worlds=_worlds(count),
    )
