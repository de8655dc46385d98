"""Writes tiny policies as robomimic saves them, and what its own rollout makes of some observations.

It runs in robomimic's environment: `python robomimic_files.py FOLDER`. Weights are random. NAME.pth, and NAME.npz: the
observations of each step under their keys, and `actions` [steps, 7].
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auras_ros.policies.robomimic.torchvision_operators import declare

declare()

from robomimic.algo import algo_factory  # noqa: E402
from robomimic.config import config_factory  # noqa: E402
from robomimic.utils import file_utils, obs_utils, train_utils  # noqa: E402
from robosuite.controllers import load_composite_controller_config  # noqa: E402

STEPS, ACTIONS, SIDE, SEED = 13, 7, 40, 5
SIZES = {"robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2, "object": 10}
STATES = sorted(SIZES)


def environment() -> dict[str, Any]:
    controller = load_composite_controller_config(robot="Panda")
    controller["body_parts"]["right"]["input_ref_frame"] = "world"
    options = {"robots": ["Panda"], "control_freq": 20, "controller_configs": controller, "reward_shaping": False}
    return {"env_name": "Lift", "env_version": "1.5.2", "type": 1, "env_kwargs": options}


def write(folder: Path, name: str, rgb: list[str], change: Any, algorithm: str = "bc", **more: Any) -> None:
    """change: what this policy's configuration has. more: its statistics."""
    torch.manual_seed(0)
    config = config_factory(algorithm)
    with config.unlocked():
        config.observation.modalities.obs.low_dim, config.observation.modalities.obs.rgb = STATES, rgb
        if rgb:
            core = config.observation.encoder.rgb.core_kwargs  # not our ResNet18
            core.backbone_class, core.feature_dimension, core.pool_kwargs = "ShallowConv", 8, {"num_kp": 4}
            config.observation.encoder.rgb.obs_randomizer_class = "CropRandomizer"
            config.observation.encoder.rgb.obs_randomizer_kwargs = {"crop_height": 36, "crop_width": 36}
        config.train.hdf5_normalize_obs = "obs_normalization_stats" in more
        change(config)
    obs_utils.initialize_obs_utils_with_config(config)
    keys = sorted([*STATES, *rgb])
    shapes = OrderedDict((key, [3, SIDE, SIDE] if key in rgb else [SIZES[key]]) for key in keys)
    model = algo_factory(algorithm, config, shapes, ACTIONS, device="cpu")
    meta = {"ac_dim": ACTIONS, "all_shapes": shapes, "all_obs_keys": keys, "use_images": bool(rgb), "use_depths": False}
    path = folder / f"{name}.pth"
    train_utils.save_model(model, config, environment(), meta, str(path), **more)
    rollout, _ = file_utils.policy_from_checkpoint(ckpt_path=str(path), device=torch.device("cpu"))
    seen = observations(rgb)
    rollout.start_episode()
    actions, stack = [], config.train.frame_stack
    for step in range(STEPS):
        instants = [max(0, step - back) for back in reversed(range(stack))]  # as its FrameStackWrapper begins
        shown = {key: value[instants] if stack > 1 else value[step] for key, value in seen.items()}
        torch.manual_seed(SEED + step)
        actions.append(rollout(shown))
    np.savez(folder / f"{name}.npz", actions=np.stack(actions), **seen)


def observations(rgb: list[str]) -> dict[str, Any]:
    random = np.random.default_rng(1)
    made: dict[str, Any] = {key: random.integers(0, 256, (STEPS, SIDE, SIDE, 3), dtype=np.uint8) for key in rgb}
    return made | {key: random.normal(size=(STEPS, SIZES[key])).astype(np.float32) for key in STATES}


def recurrent(config: Any) -> None:
    config.algo.rnn.enabled, config.algo.rnn.horizon, config.algo.rnn.hidden_dim = True, 5, 16
    config.algo.gmm.enabled, config.algo.actor_layer_dims = True, ()


def open_loop(config: Any) -> None:
    config.algo.rnn.enabled, config.algo.rnn.horizon, config.algo.rnn.hidden_dim = True, 4, 16
    config.algo.rnn.open_loop, config.algo.actor_layer_dims = True, ()


def transformer(config: Any) -> None:
    config.algo.transformer.enabled, config.algo.transformer.embed_dim = True, 16
    config.algo.transformer.num_layers, config.algo.transformer.num_heads = 2, 2
    config.algo.transformer.context_length = config.train.frame_stack = config.train.seq_length = 3


def vae(config: Any) -> None:
    config.algo.vae.enabled, config.algo.actor_layer_dims = True, (16, 12)


def statistics(sizes: dict[str, int]) -> dict[str, Any]:
    """Another one of each number."""
    return {
        key: {"offset": np.linspace([-0.3], [0.3], size, axis=1), "scale": np.linspace([0.2], [0.7], size, axis=1)}
        for key, size in sizes.items()
    }


def main() -> None:
    folder = Path(sys.argv[1])
    observed = {"obs_normalization_stats": statistics(SIZES)}
    write(folder, "rnn", [], recurrent, **observed, action_normalization_stats=statistics({"actions": ACTIONS}))
    write(folder, "rnn_images", ["agentview_image", "robot0_eye_in_hand_image"], recurrent)
    write(folder, "rnn_open_loop", [], open_loop)
    write(folder, "transformer", [], transformer)
    write(folder, "vae", [], vae)
    write(folder, "iql", [], lambda config: None, "iql")


if __name__ == "__main__":
    main()
