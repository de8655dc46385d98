"""Writes the fixtures of LeRobot's `diffusion`: two tiny policies as the library saves them, and what it does itself.

    python scripts/write_loader_fixtures/lerobot_diffusion.py

Patched: the backbone (`tiny_resnet`; LeRobot has torchvision's sizes alone), and where the scheduler draws its noise,
so that the draws can be kept. Weights are random; a network that predicts the noise is trained for some seconds, for
actions that are not all clipped.
"""

from __future__ import annotations

from typing import Any

import lerobot_fixture as fixture
import tiny_resnet
import torch
from diffusers.schedulers import scheduling_ddpm
from lerobot.configs.types import NormalizationMode
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from lerobot.policies.diffusion.processor_diffusion import make_diffusion_pre_post_processors
from lerobot.policies.utils import populate_queues
from torch import Tensor

MEAN_STD, MIN_MAX = NormalizationMode.MEAN_STD, NormalizationMode.MIN_MAX


def write(name: str, cameras: dict[str, tuple[int, int]], actions: int, **settings: Any) -> None:
    torch.manual_seed(0)
    names = fixture.features(cameras, len(fixture.JOINTS), actions)
    stats = fixture.statistics(names)
    config = DiffusionConfig(**names, device="cpu", push_to_hub=False, **settings)
    policy = DiffusionPolicy(config).eval()
    tiny_resnet.settle(policy)
    with torch.no_grad():  # features that vary
        for module_name, module in policy.named_modules():
            if module_name.endswith("pool.nets"):
                module.weight *= 10
    if config.prediction_type == "epsilon":
        train(policy, config.n_obs_steps * (len(fixture.JOINTS) + 8 * len(cameras)))
    before, after = make_diffusion_pre_post_processors(config, stats)
    raw = fixture.observations(names, stats, config.n_obs_steps)
    draws = torch.randn((policy.diffusion.num_inference_steps, 1, config.horizon, actions))
    chunk = predicted(policy, [before(fixture.frame(raw, at)) for at in range(config.n_obs_steps)], draws)
    tape = draws[:1] if config.noise_scheduler_type == "DDIM" else draws
    fixture.write(name, (policy, before, after), raw, after(chunk)[0], tape[:, 0])


def train(policy: DiffusionPolicy, width: int, steps: int = 300, batch: int = 32) -> None:
    """The U-Net alone towards actions that follow the condition. width: numbers of the condition."""
    diffusion, config = policy.diffusion, policy.config
    actions, mix = config.action_feature.shape[0], torch.randn(width, config.action_feature.shape[0]) / width**0.5
    optimizer, scheduler = torch.optim.Adam(diffusion.unet.parameters(), 3e-3), diffusion.noise_scheduler
    for _ in range(steps):
        condition, noise = torch.randn(batch, width), torch.randn(batch, config.horizon, actions)
        clean = 0.7 * torch.sin(torch.linspace(0, 3, config.horizon)[None, :, None] + (condition @ mix)[:, None])
        at = torch.randint(config.num_train_timesteps, (batch,))
        guess = diffusion.unet(scheduler.add_noise(clean, noise, at), at, global_cond=condition)
        loss = torch.nn.functional.mse_loss(guess, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


def predicted(policy: DiffusionPolicy, frames: list[dict[str, Tensor]], draws: Tensor) -> Tensor:
    """What `select_action` makes its queue of, after these frames: normalised actions [1, n_action_steps, actions]."""
    policy.reset()
    for seen in frames:
        batch = {name: values for name, values in seen.items() if name.startswith("observation")}
        batch["observation.images"] = torch.stack([batch[key] for key in policy.config.image_features], dim=-4)
        policy._queues = populate_queues(policy._queues, batch)
    rest = iter(draws[1:])
    scheduling_ddpm.randn_tensor = lambda *args, **kwargs: next(rest)
    with torch.no_grad():
        return policy.predict_action_chunk(batch, noise=draws[0])


def main() -> None:
    tiny_resnet.register("resnet_narrow", (16, 16, 16, 16), (1, 1, 1, 1))
    tiny_resnet.register("resnet_tiny", (4, 8, 8, 16), (1, 2, 1, 1))
    common = {
        "spatial_softmax_num_keypoints": 4,
        "down_dims": (16, 32),
        "kernel_size": 3,
        "diffusion_step_embed_dim": 16,
    }
    write(
        "lerobot_diffusion", {"top": (72, 88)}, 3, vision_backbone="resnet_narrow", crop_shape=(64, 80), n_groups=4,
        n_obs_steps=2, horizon=8, n_action_steps=6, num_train_timesteps=20, **common,
    )  # fmt: skip
    write(
        "lerobot_diffusion_cameras", {"wrist": (64, 96), "front": (64, 96)}, 2, vision_backbone="resnet_tiny",
        use_group_norm=False, use_separate_rgb_encoder_per_camera=True, n_groups=2, n_obs_steps=3, horizon=12,
        n_action_steps=4, noise_scheduler_type="DDIM", num_train_timesteps=100, num_inference_steps=7,
        prediction_type="sample", use_film_scale_modulation=False, clip_sample_range=0.8,
        normalization_mapping={"VISUAL": MIN_MAX, "STATE": MEAN_STD, "ACTION": MEAN_STD},
        **{**common, "down_dims": (8, 16)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
