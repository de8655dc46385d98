"""What LeRobot's types with a vision-language model have in common: their pictures, SigLIP's names, the chunk.

An empty camera is a picture that the reference masks and counts in no position: it is left out. This module knows no
model.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.observation import CameraSpec, Pad, Resize, SpecError
from auras_ros.policies.loaders.lerobot import LeRobotFolder, PolicyFeature
from auras_ros.policies.loaders.robot import Robot

EMPTY = re.compile(r"observation\.images\.empty_camera_\d+")
HALF = (0.5, 0.5, 0.5)


def cameras_of(folder: LeRobotFolder) -> list[PolicyFeature]:
    """The pictures that there are. Raises CheckpointError where there are none, or where the statistics change them."""
    for feature in folder.cameras:
        if folder.normalization(feature, 3).kind != "none":
            raise CheckpointError(f"{folder.file}: '{feature.name}' is normalised by statistics; expected IDENTITY")
    found = [feature for feature in folder.cameras if not EMPTY.fullmatch(feature.name)]
    if not found:
        raise CheckpointError(f"{folder.file}: input_features: a policy without pictures is not supported")
    return found


def camera_of(folder: LeRobotFolder, robot: Robot, feature: PolicyFeature, side: int, pad: Pad) -> CameraSpec:
    """A camera whose pictures are brought to a square, with their aspect ratio, and to -1..1."""
    _, height, width = feature.shape
    real = robot.camera(feature.name, height, width)
    resize = None if (real.height, real.width) == (side, side) else Resize(side, side, "linear_float", pad)
    try:
        return CameraSpec(real.name, real.height, real.width, resize=resize, mean=HALF, std=HALF)
    except SpecError as error:
        raise CheckpointError(f"{folder.file}: input '{feature.name}': {error}") from error


def executed(folder: LeRobotFolder) -> list[int]:
    """Which of the predicted actions are a chunk: as many as the library executes of one."""
    horizon, count = folder.count("chunk_size"), folder.count("n_action_steps")
    if count > horizon:
        raise CheckpointError(f"{folder.file}: n_action_steps: {count} is more than chunk_size, {horizon}")
    return [0, count]


def joined_attention(tensors: dict[str, Tensor], layers: str) -> dict[str, Tensor]:
    """With the three projections of each vision layer as one, `qkv`, where all three are there and fit together."""
    made = dict(tensors)
    for name in tensors:
        if not name.startswith(layers) or ".self_attn.q_proj." not in name:
            continue
        parts = [name.replace("q_proj", f"{each}_proj") for each in "qkv"]
        if all(part in tensors and tensors[part].shape == tensors[name].shape for part in parts):
            made[name.replace("q_proj", "qkv")] = torch.cat([made.pop(part) for part in parts])
    return made


def siglip_name(name: str) -> str:
    """transformers' name of a tensor of `models.vit`."""
    if name == "pos_embed":
        return "embeddings.position_embedding.weight"
    if name.startswith("patch_embed."):
        return f"embeddings.patch_embedding.{name.removeprefix('patch_embed.proj.')}"
    for ours, theirs in (
        (".norm1.", ".layer_norm1."),
        (".norm2.", ".layer_norm2."),
        (".attn.qkv.", ".self_attn.qkv."),
        (".attn.proj.", ".self_attn.out_proj."),
    ):
        name = name.replace(ours, theirs)
    return f"encoder.{name}"
