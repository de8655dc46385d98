"""The policies that LeRobot makes: sizes of its DiffusionPolicy, its samplers, and a robot.json for them.

`published` has the defaults of LeRobot's DiffusionConfig; images are not cropped and have Push-T's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SMALL = {
    "n_obs_steps": 2, "horizon": 16, "n_action_steps": 8, "vision_backbone": "resnet18", "kernel_size": 5,
    "spatial_softmax_num_keypoints": 32, "down_dims": [64, 128, 256], "diffusion_step_embed_dim": 64,
}  # fmt: skip
_PUSHT = {"cameras": 1, "image_px": [96, 96], "state": 2, "actions": 2}
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        **_PUSHT,
        "image_px": [32, 32],
        "config": {**_SMALL, "horizon": 8, "n_action_steps": 4, "down_dims": [16, 32], "diffusion_step_embed_dim": 16},
    },
    "small": {**_PUSHT, "config": _SMALL},
    "published": {
        **_PUSHT,
        "config": {**_SMALL, "down_dims": [512, 1024, 2048], "diffusion_step_embed_dim": 128},
    },
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "ddpm100": {"noise_scheduler_type": "DDPM", "num_train_timesteps": 100},
    "ddim10": {"noise_scheduler_type": "DDIM", "num_train_timesteps": 100, "num_inference_steps": 10},
}


def robot_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """A robot.json for a LeRobot configuration; the meaning of its channels does not matter here."""
    actions, states = (config[key][name]["shape"][0] for key, name in _VECTORS)
    limits = {"unit": "m", "kind": "absolute", "lower": -10.0, "upper": 10.0, "max_rate": 1000.0, "hold": "last"}
    channels = [{"name": f"joint{i}", **limits} for i in range(actions)]
    return {"dt_ms": 100, "action": {"channels": channels}, "state": [f"joint{i}" for i in range(states)]}


_VECTORS = (("output_features", "action"), ("input_features", "observation.state"))
