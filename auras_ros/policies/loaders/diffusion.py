"""What loaders of Diffusion Policy share: its sampling, the crop, names of the ResNet, the order of the condition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from auras_ros.observation import Crop

FINAL_GROUPS = 8  # of the U-Net's last block, whatever n_groups says


def published_plan(sampler: str, steps: int, clip: float | None) -> dict[str, dict[str, Any]]:
    """Only the reference's own sampling; the plan's name gives sampler and steps."""
    plan = {"sampler": sampler, "steps": steps, "spacing": "leading", "clip": clip, "corrected": False}
    return {f"{sampler}{steps}": plan}


def center(crop: tuple[int, int] | None, height: int, width: int) -> Crop | None:
    """The middle of an image, (height, width), at the place of torchvision's CenterCrop."""
    if crop is None:
        return None
    top, left = (round((side - part) / 2) for side, part in zip((height, width), crop, strict=True))
    return Crop(*crop, top, left)


def resnet_name(name: str, sequence: str) -> str:
    """A tensor of our ResNet if the reference has its parts in a sequence, `sequence`0. to 7."""
    name = name.replace("backbone.conv1.", f"{sequence}0.").replace("backbone.bn1.", f"{sequence}1.")
    return re.sub(r"^backbone\.layer(\d)\.", lambda at: f"{sequence}{int(at[1]) + 3}.", name)


def reorder(tensors: dict[str, Tensor], network: dict[str, Any], history: int, columns: Sequence[int]) -> None:
    """Reorder the columns of every layer that takes the condition, from their order of an instant's features to ours,
    in place. columns: where each of our numbers is in theirs."""
    instant = torch.tensor(columns)
    if network["type"] == "transformer":
        ending, whole = "network.cond_obs_emb.weight", instant
    else:
        ending, step = "cond_encoder.1.weight", network["step_width"]
        parts = [step + at * len(instant) + instant for at in range(history)]
        whole = torch.cat([torch.arange(step), *parts])
    for name, tensor in tensors.items():
        if name.endswith(ending) and tensor.shape[1:] == whole.shape:
            tensors[name] = tensor[:, whole]
