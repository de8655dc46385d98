"""Writes the fixtures of robomimic: tiny policies as its training saves them, and what it makes of an observation.

    PYTHONPATH=. python scripts/write_loader_fixtures/robomimic_files.py

Written by robomimic 0.5 (on PyPI as praxis-robomimic; 0.3 has no diffusion policy), diffusers 0.42 and torch 2.13. It
needs h5py, tensorboardX, termcolor, imageio and torchvision besides. Patched are the sizes of ResNet and U-Net, for
which robomimic has no setting, and where noise is drawn, so that the draws can be kept. Saved and read again by its own
`save_model` and `policy_from_checkpoint`; the actions are those of its `RolloutPolicy`, one after the other. Weights
are random.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import robomimic.models.base_nets as base_nets
import robomimic.models.diffusion_policy_nets as diffusion_nets
import robomimic.utils.file_utils as file_utils
import robomimic.utils.obs_utils as obs_utils
import robomimic.utils.train_utils as train_utils
import tiny_resnet
import torch
from diffusers.schedulers import scheduling_ddpm
from robomimic.algo import algo_factory
from robomimic.config import config_factory
from safetensors.torch import save_file
from torch import Tensor

HERE = Path(__file__).resolve().parents[2] / "tests/policies/loaders/data/robomimic"
WIDTH, SIDE, CROP, ACTIONS = 16, 40, 33, 7
SIZES = {"robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2, "object": 10}
ENVIRONMENT = {
    "env_name": "Lift",
    "env_version": "1.5.1",
    "type": 1,
    "env_kwargs": {
        "has_renderer": False,
        "has_offscreen_renderer": False,
        "ignore_done": True,
        "use_object_obs": True,
        "use_camera_obs": False,
        "control_freq": 20,
        "controller_configs": {
            "type": "BASIC",
            "body_parts": {
                "right": {"type": "OSC_POSE", "input_max": 1, "input_min": -1, "input_type": "delta",
                          "input_ref_frame": "world", "gripper": {"type": "GRIP"}},
            },
        },
        "robots": ["Panda"],
        "reward_shaping": False,
    },
}  # fmt: skip


def patch_sizes() -> None:
    tiny_resnet.register("resnet18", (WIDTH,) * 4, (2,) * 4)
    shape_of = base_nets.ResNet18Conv.output_shape
    base_nets.ResNet18Conv.output_shape = lambda self, shape: [WIDTH, *shape_of(self, shape)[1:]]
    small = functools.partial(diffusion_nets.ConditionalUnet1D, diffusion_step_embed_dim=8, down_dims=[8, 16])
    diffusion_nets.ConditionalUnet1D = small


def write(name: str, algorithm: str, low_dim: list[str], rgb: list[str], change: Any, **more: Any) -> None:
    """change: what this policy's configuration has. more: its statistics."""
    torch.manual_seed(0)
    config = config_factory(algorithm)
    with config.unlocked():
        config.observation.modalities.obs.low_dim, config.observation.modalities.obs.rgb = low_dim, rgb
        core = config.observation.encoder.rgb.core_kwargs
        core.feature_dimension, core.pool_kwargs = 6, {"num_kp": 4}
        if rgb:
            config.observation.encoder.rgb.obs_randomizer_class = "CropRandomizer"
            config.observation.encoder.rgb.obs_randomizer_kwargs = {"crop_height": CROP, "crop_width": CROP}
        config.train.hdf5_normalize_obs = "obs_normalization_stats" in more
        if algorithm == "diffusion_policy":  # its training sets them, for the learning rate
            config.algo.optim_params.policy.num_train_batches = config.algo.optim_params.policy.num_epochs = 1
        change(config)
    obs_utils.initialize_obs_utils_with_config(config)
    keys = sorted([*low_dim, *rgb])
    shapes = OrderedDict((key, [3, SIDE, SIDE] if key in rgb else [SIZES[key]]) for key in keys)
    model = algo_factory(algorithm, config, shapes, ACTIONS, device="cpu")
    settled(model)
    meta = {"ac_dim": ACTIONS, "all_shapes": shapes, "all_obs_keys": keys, "use_images": bool(rgb), "use_depths": False}
    path = HERE / f"{name}.pth"
    train_utils.save_model(model, config, ENVIRONMENT, meta, str(path), **more)
    rollout, _ = file_utils.policy_from_checkpoint(ckpt_path=str(path), device=torch.device("cpu"))
    rollout.start_episode()
    seen = observation(low_dim, rgb, config.train.frame_stack)
    with torch.no_grad():
        noise, actions = (diffused if algorithm == "diffusion_policy" else cloned)(rollout, seen, config)
    raw = {f"raw/{key}": torch.from_numpy(value) for key, value in seen.items()}
    save_file({**raw, "noise": noise.contiguous(), "actions": actions.contiguous()}, HERE / f"{name}.safetensors")
    print(name, path.stat().st_size, "bytes; actions", actions.min().item(), "to", actions.max().item())


def settled(model: Any) -> None:
    """Values that a trained network could have; those of the moving average differ from the others."""
    for nets in (model.nets, getattr(model, "ema_nets", None)):
        if nets is None:
            continue
        tiny_resnet.settle(nets)
        with torch.no_grad():
            for name, values in nets.named_parameters():
                values.add_(0.05 * torch.randn_like(values))
                if "pool.nets" in name:
                    values.mul_(10)
            for name, values in nets.named_buffers():
                if name.endswith("temperature"):
                    values.fill_(1)


def observation(low_dim: list[str], rgb: list[str], history: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    made = {key: random.integers(0, 256, (history, SIDE, SIDE, 3), dtype=np.uint8) for key in rgb}
    return made | {key: random.normal(size=(history, SIZES[key])).astype(np.float32) for key in low_dim}


def diffused(rollout: Any, seen: dict[str, np.ndarray], config: Any) -> tuple[Tensor, Tensor]:
    """(tape, actions): all that robomimic executes of a chunk."""
    horizons, ddpm = config.algo.horizon, config.algo.ddpm.enabled
    steps = config.algo.ddpm.num_inference_timesteps if ddpm else 1
    draws = torch.randn((steps, 1, horizons.prediction_horizon, ACTIONS))
    rest, randn = iter(draws), torch.randn
    scheduling_ddpm.randn_tensor = lambda *args, **kwargs: next(rest)
    torch.randn = lambda *args, **kwargs: next(rest)
    try:
        chunk = [rollout(seen) for _ in range(horizons.action_horizon)]
    finally:
        torch.randn = randn
    return draws[:, 0], torch.from_numpy(np.stack(chunk)).float()


def cloned(rollout: Any, seen: dict[str, np.ndarray], config: Any) -> tuple[Tensor, Tensor]:
    """Of a mixture: the mode in whose part of the distribution a normal number lies, and the noise around it."""
    newest = {key: value[-1] for key, value in seen.items()}
    if not config.algo.gmm.enabled:
        return torch.zeros(0), torch.from_numpy(rollout(newest)).float()[None]
    tape = torch.randn(1 + ACTIONS)
    spread = rollout.policy.nets["policy"].forward_train(rollout._prepare_observation(newest))
    modes, place = spread.component_distribution.base_dist, torch.distributions.Normal(0, 1).cdf(tape[0])
    mode = int((spread.mixture_distribution.probs[0].cumsum(0) < place).sum())
    print("shares of the modes", spread.mixture_distribution.probs[0].tolist(), "drawn", mode)
    return tape, modes.loc[0, mode][None] + modes.scale[0, mode] * tape[1:]


def ddim(config: Any) -> None:
    config.algo.ddpm.enabled, config.algo.ddim.enabled, config.algo.ema.enabled = False, True, False
    config.algo.horizon.prediction_horizon, config.algo.horizon.action_horizon = 8, 4


def ddpm(config: Any) -> None:
    config.algo.ddpm.num_train_timesteps = config.algo.ddpm.num_inference_timesteps = 12
    config.algo.horizon.prediction_horizon, config.algo.horizon.action_horizon = 8, 4


def mixture(config: Any) -> None:
    config.algo.gmm.enabled, config.algo.actor_layer_dims = True, (16, 12)


def single(config: Any) -> None:
    config.algo.actor_layer_dims = (16, 12)


def statistics(sizes: dict[str, int]) -> dict[str, Any]:
    random = np.random.default_rng(2)
    made = {}
    for key, size in sizes.items():
        offset, scale = random.uniform(-0.5, 0.5, (1, size)), random.uniform(0.2, 0.8, (1, size))
        made[key] = {"offset": offset.astype(np.float32), "scale": scale.astype(np.float32)}
    return made


def main() -> None:
    patch_sizes()
    HERE.mkdir(parents=True, exist_ok=True)
    state = ["robot0_eef_pos", "robot0_gripper_qpos"]
    low_dim = ["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"]
    actions = {"action_normalization_stats": statistics({"actions": ACTIONS})}
    write("diffusion_images", "diffusion_policy", state, ["robot0_eye_in_hand_image"], ddim, **actions)
    write("diffusion_low_dim", "diffusion_policy", low_dim, [], ddpm)
    write("bc_mixture_images", "bc", state, ["agentview_image", "robot0_eye_in_hand_image"], mixture)
    normalised = {"obs_normalization_stats": statistics({key: SIZES[key] for key in low_dim})}
    write("bc_low_dim", "bc", low_dim, [], single, **normalised, **actions)


if __name__ == "__main__":
    main()
