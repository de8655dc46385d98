"""The parts of our manifest that LeRobot's types have in common: state, cameras, statistics of the actions.

Features keep the order of config.json. This module knows no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auras_ros.checkpoints.errors import refusing
from auras_ros.checkpoints.manifest import FORMAT
from auras_ros.observation import CameraSpec, ObservationSpec, Resize, SpecError, StateSpec
from auras_ros.policies.loaders.diffusion import center
from auras_ros.policies.loaders.lerobot import LeRobotFolder
from auras_ros.policies.loaders.lerobot_files import PolicyFeature
from auras_ros.policies.loaders.robot import Robot

COLORS = 3


def manifest(folder: LeRobotFolder, robot: Robot, kind: str, **more: Any) -> dict[str, Any]:
    """Our manifest; keys that are not in `more` come from the folder and the robot. Raises CheckpointError."""
    common = {
        "format": FORMAT,
        "name": folder.path.resolve().name,
        "type": kind,
        "action": robot.contract.to_dict(),
        "statistics": statistics(folder),
    }
    return {**common, **more}


def observation(folder: LeRobotFolder, robot: Robot, history: int, cameras: tuple[CameraSpec, ...]) -> dict[str, Any]:
    """Raises CheckpointError."""
    with refusing(folder.path, SpecError):
        return ObservationSpec(cameras, state(folder, robot), history, robot.dt_ms).to_dict()


def state(folder: LeRobotFolder, robot: Robot) -> StateSpec | None:
    """The robot's joints, normalised as the folder says. Raises CheckpointError."""
    if folder.state is None:
        return None
    found = folder.normalization(folder.state, folder.state.shape[0])
    second = found.divisor if found.kind == "mean_std" else found.second
    return StateSpec(robot.state or (), found.kind, found.first, second)


def camera(
    folder: LeRobotFolder, robot: Robot, feature: PolicyFeature, crop: tuple[int, int] | None = None
) -> CameraSpec:
    """A camera whose pixels go from 0..1 through the folder's normalisation.

    Images of another size than in training are resized to that first. crop: the centre, (height, width), at the place
    of torchvision's CenterCrop. Raises CheckpointError.
    """
    _, height, width = feature.shape
    found, real = folder.normalization(feature, COLORS), robot.camera(feature.name, height, width)
    mean, std = found.center_and_scale() if found.kind != "none" else ((0.0,) * COLORS, (1.0,) * COLORS)
    resize = None if (real.height, real.width) == (height, width) else Resize(height, width)
    with refusing(f"{folder.file}: input '{feature.name}'", SpecError):
        return CameraSpec(
            real.name, real.height, real.width, resize=resize, crop=center(crop, height, width),
            order="resize_then_crop", mean=_three(mean), std=_three(std),
        )  # fmt: skip


def statistics(folder: LeRobotFolder) -> Mapping[str, Any]:
    """What the networks' numbers mean in actions. Raises CheckpointError."""
    size = folder.action.shape[0]
    found = folder.normalization(folder.action, size)
    if found.kind == "mean_std":
        return {"kind": "mean_std", "mean": list(found.first), "std": list(found.second)}
    lower, upper = (found.first, found.second) if found.kind == "min_max" else ((-1.0,) * size, (1.0,) * size)
    return {"kind": "min_max", "lower": list(lower), "upper": list(upper)}


def _three(values: tuple[float, ...]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue
