"""What the LeRobot fixtures have in common: statistics, raw observations, robot.json, the file of the reference.

Run with LeRobot at hand: scripts/lerobot/env.sh makes an environment for each release that is compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

try:
    from lerobot.configs import FeatureType, PolicyFeature
except ImportError:  # before LeRobot 0.6
    from lerobot.configs.types import FeatureType, PolicyFeature
from safetensors.torch import save_file
from torch import Tensor

DATA = Path(__file__).parents[2] / "tests" / "policies" / "loaders" / "data"
JOINTS = ["shoulder", "elbow", "wrist", "gripper"]


def features(cameras: dict[str, tuple[int, int]], states: int, actions: int) -> dict[str, dict[str, PolicyFeature]]:
    """input_features (in this order) and output_features. cameras: name -> (height, width)."""
    pictures = {
        f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *size)) for name, size in cameras.items()
    }
    inputs = {**pictures, "observation.state": PolicyFeature(FeatureType.STATE, (states,))}
    return {"input_features": inputs, "output_features": {"action": PolicyFeature(FeatureType.ACTION, (actions,))}}


def statistics(names: dict[str, dict[str, PolicyFeature]]) -> dict[str, dict[str, Tensor]]:
    """Of a data set that nobody has: all that LeRobot keeps, different for every number."""
    made, random = {}, torch.Generator().manual_seed(3)
    for name, feature in {**names["input_features"], **names["output_features"]}.items():
        picture = feature.type is FeatureType.VISUAL
        shape = (3, 1, 1) if picture else feature.shape
        low, span = (torch.rand(shape, generator=random) for _ in range(2))
        low, span = (0.2 * low, 0.6 + 0.2 * span) if picture else (4 * low - 3, 1 + 3 * span)
        made[name] = {"min": low, "max": low + span, "mean": low + 0.45 * span, "std": 0.25 * span}
    return made


def observations(names: dict[str, dict[str, PolicyFeature]], stats: dict[str, Any], history: int) -> dict[str, Tensor]:
    """Raw: pictures uint8 [history, h, w, 3] that are smooth, the state float32 [history, numbers]."""
    raw, random = {}, torch.Generator().manual_seed(11)
    for name, feature in names["input_features"].items():
        if feature.type is FeatureType.VISUAL:
            coarse = torch.rand((history, 3, 4, 5), generator=random)
            fine = torch.nn.functional.interpolate(coarse, feature.shape[1:], mode="bilinear")
            raw[name] = (255 * fine).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
        else:
            share = torch.rand((history, *feature.shape), generator=random)
            raw[name] = stats[name]["min"] + share * (stats[name]["max"] - stats[name]["min"])
    return raw


def frame(raw: dict[str, Tensor], at: int) -> dict[str, Tensor]:
    """One instant as LeRobot's data sets and robots give it: pictures float [3, h, w] from 0 to 1."""
    return {
        name: values[at].permute(2, 0, 1).float() / 255 if values.dtype == torch.uint8 else values[at].float()
        for name, values in raw.items()
    }


def write(
    name: str, parts: tuple[Any, ...], raw: dict[str, Tensor], actions: Tensor, noise: Tensor, **more: Any
) -> None:
    """The folder: the policy and its processors as the library saves them, reference.safetensors, and robot.json with
    `more` of its keys. name: in tests' data, or a whole path."""
    folder = DATA / name
    for part in parts:
        part.save_pretrained(folder)
    tensors = {**{f"raw/{name}": values for name, values in raw.items()}, "actions": actions, "noise": noise}
    save_file({name: values.contiguous() for name, values in tensors.items()}, folder / "reference.safetensors")
    channel = {"unit": "rad", "kind": "absolute", "lower": -10.0, "upper": 10.0, "max_rate": 20.0, "hold": "last"}
    robot = {
        "dt_ms": 50,
        "action": {"channels": [{"name": joint, **channel} for joint in JOINTS[: actions.shape[-1]]]},
        "state": JOINTS,
        **more,
    }
    (folder / "robot.json").write_text(json.dumps(robot, indent=1) + "\n", encoding="utf-8")
    for path in (*folder.glob("*.safetensors"), *folder.glob("*.json")):
        path.chmod(0o644)
    print(folder.name, {path.name: path.stat().st_size for path in sorted(folder.iterdir())})
    print("actions", actions.min().item(), actions.max().item(), actions.std(0))
