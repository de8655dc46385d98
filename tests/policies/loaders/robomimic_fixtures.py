"""Files that robomimic wrote (scripts/write_loader_fixtures/robomimic_files.py): what is in them, and changed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from auras_ros.policies.loaders.robot import Robot
from tests.policies.loaders.reference import DATA

FOLDER = DATA / "robomimic"
DIFFUSION_IMAGES, DIFFUSION_LOW_DIM = "diffusion_images", "diffusion_low_dim"
MIXTURE_IMAGES, CLONING_LOW_DIM = "bc_mixture_images", "bc_low_dim"
CAMERAS = {
    DIFFUSION_IMAGES: ["robot0_eye_in_hand_image"],
    DIFFUSION_LOW_DIM: [],
    MIXTURE_IMAGES: ["agentview_image", "robot0_eye_in_hand_image"],
    CLONING_LOW_DIM: [],
}
EYE = [("robot0_eef_pos", 3), ("robot0_gripper_qpos", 2)]
# In the order of robomimic's `all_shapes`, which is that of the alphabet.
OBJECT = [("object", 10), ("robot0_eef_pos", 3), ("robot0_eef_quat", 4), ("robot0_gripper_qpos", 2)]
STATES = {DIFFUSION_IMAGES: EYE, DIFFUSION_LOW_DIM: OBJECT, MIXTURE_IMAGES: EYE, CLONING_LOW_DIM: OBJECT}
CHANNELS = ["dx", "dy", "dz", "drx", "dry", "drz", "gripper"]


def robot(folder: Path, name: str) -> Robot:
    """A robot.json for one of them, as a person would write it."""
    channel = {"unit": "", "kind": "velocity", "lower": -2.0, "upper": 2.0, "hold": "zero"}
    told = {
        "dt_ms": 50,
        "action": {"channels": [{"name": each, **channel} for each in CHANNELS]},
        "state": [f"{key}_{i}" for key, size in STATES[name] for i in range(size)],
        "cameras": {camera: {"name": camera.removesuffix("_image")} for camera in CAMERAS[name]},
    }
    (folder / "robot.json").write_text(json.dumps(told))
    return Robot.load(folder / "robot.json")


def changed(folder: Path, name: str, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Path:
    """The file after `change(payload, config)`."""
    payload = torch.load(FOLDER / f"{name}.pth", weights_only=True)
    config = json.loads(payload["config"])
    change(payload, config)
    if isinstance(payload.get("config"), str) and payload["config"].startswith("{"):
        payload["config"] = json.dumps(config)
    torch.save(payload, folder / f"{name}.pth")
    return folder / f"{name}.pth"


def nested(*keys: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    """A change of the configuration."""

    def change(payload: dict[str, Any], config: dict[str, Any]) -> None:
        *way, last = keys
        for key in way:
            config = config[key]
        config[last] = value

    return change
