"""What LeRobot's types with a vision-language model have in common: their images, SigLIP's names, the chunk.

An empty camera is an image that the reference masks and that counts in no position: it is left out. This module knows
no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import refusing
from auras_ros.observation import CameraSpec, Pad, Resize, SpecError
from auras_ros.policies.loaders import lerobot_manifest
from auras_ros.policies.loaders.lerobot import LeRobotFolder
from auras_ros.policies.loaders.lerobot_files import PolicyFeature
from auras_ros.policies.loaders.lerobot_keys import is_off
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated, renamed, wanted

EMPTY = re.compile(r"observation\.images\.empty_camera_\d+")
HALF = (0.5, 0.5, 0.5)


def check_fixed(folder: LeRobotFolder) -> None:
    """Check keys of which all these types support only one value. Raises CheckpointError, naming the key."""
    for key, supported in {"n_obs_steps": 1, "min_period": 0.004, "max_period": 4.0}.items():
        folder.get(key, (supported,))
    if not is_off(folder.config.get("rtc_config")):
        folder.get("rtc_config", (None,))


def pictures(folder: LeRobotFolder, robot: Robot, side: int, pad: Pad) -> tuple[CameraSpec, ...]:
    """The cameras, whose images are resized to a square, with their aspect ratio, and scaled to -1..1. Raises
    CheckpointError if there are none, if the statistics change them, or if there is no state."""
    if folder.state is None:
        raise folder.refused("input_features: a policy without a state is not supported")
    for feature in folder.cameras:
        if folder.normalization(feature, 3).kind != "none":
            raise folder.refused(f"'{feature.name}' is normalised by statistics; expected IDENTITY")
    found = [feature for feature in folder.cameras if not EMPTY.fullmatch(feature.name)]
    if not found:
        raise folder.refused("input_features: a policy without images is not supported")
    return tuple(_camera(folder, robot, feature, side, pad) for feature in found)


def _camera(folder: LeRobotFolder, robot: Robot, feature: PolicyFeature, side: int, pad: Pad) -> CameraSpec:
    _, height, width = feature.shape
    real = robot.camera(feature.name, height, width)
    resize = None if (real.height, real.width) == (side, side) else Resize(side, side, "linear_float", pad)
    with refusing(f"{folder.file}: input '{feature.name}'", SpecError):
        return CameraSpec(real.name, real.height, real.width, resize=resize, mean=HALF, std=HALF)


def flow_manifest(
    folder: LeRobotFolder, robot: Robot, network: dict[str, Any], seen: tuple[CameraSpec, ...], steps: int
) -> dict[str, Any]:
    """A manifest of our family `flow`. Raises CheckpointError."""
    return lerobot_manifest.manifest(
        folder,
        robot,
        "flow",
        encoder={},
        network=network,
        horizon=folder.count("chunk_size"),
        observation=lerobot_manifest.observation(folder, robot, 1, seen),
        plans={"euler": {"steps": steps}},
        executed=executed(folder),
    )


def translated(
    folder: LeRobotFolder,
    manifest: dict[str, Any],
    tensors: dict[str, Tensor],
    tower: str,
    source_of: Callable[[str], str],
    is_ignored: Callable[[str], bool],
) -> Translated:
    """Like `renamed`. tower: the prefix of SigLIP's tensor names."""
    tensors = joined_attention(tensors, f"{tower}encoder.layers.")
    named, origin = renamed(wanted(manifest, folder.file), tensors, folder.weights, source_of, is_ignored)
    positions = "prefix.model.vision.pos_embed"
    named[positions] = named[positions][None] if named[positions].dim() == 2 else named[positions]
    return Translated(manifest, named, origin)


def executed(folder: LeRobotFolder) -> list[int]:
    """Which of the predicted actions are a chunk: as many as the library executes."""
    horizon, count = folder.count("chunk_size"), folder.count("n_action_steps")
    if count > horizon:
        raise folder.refused(f"n_action_steps: {count} is more than chunk_size, {horizon}")
    return [0, count]


def joined_attention(tensors: dict[str, Tensor], layers: str) -> dict[str, Tensor]:
    """With the three projections of each vision layer as one, `qkv`, if all three exist and fit together."""
    made = dict(tensors)
    for name in tensors:
        if not name.startswith(layers) or ".self_attn.q_proj." not in name:
            continue
        parts = [name.replace("q_proj", f"{each}_proj") for each in "qkv"]
        if all(part in tensors and tensors[part].shape == tensors[name].shape for part in parts):
            made[name.replace("q_proj", "qkv")] = torch.cat([made.pop(part) for part in parts])
    return made
