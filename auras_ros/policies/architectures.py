"""Diffusion Policy's published architectures and small ones, by name, with random weights: for benchmarks and tests.

Speed does not depend on the weights; trained ones come from a checkpoint. Sizes are those of the published
configurations (Chi et al. 2023; Auras table 2): two observation steps; DP is Push-T with one camera of 96 px, `plus` is
robomimic's two-armed transport with four cameras of 84 px. One encoder serves all cameras: the published code has one
for each, but the sizes that Auras gives (section 6.1) are those of a shared one, and the work is the same. Images are
not cropped: a crop would only make perception cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.denoising import TRAINING_STEPS, Prediction, SamplerName, Spacing, make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.family import unit
from auras_ros.policies.networks import build_encoder, build_network

PREDICTION: Prediction = "epsilon"  # as published
SPACING: Spacing = "leading"


@dataclass(frozen=True)
class ArchitecturePreset:
    """An architecture and the descriptions of its networks (`policies.networks`)."""

    architecture: Architecture
    encoder: Mapping[str, Any]
    network: Mapping[str, Any]


_RESNET, _SMALL_RESNET = {"type": "resnet18"}, {"type": "resnet18", "width": 16}
_TRANSFORMER = {"type": "transformer", "layers": 8, "heads": 4, "width": 256}
_UNET = {"type": "conditional_unet1d", "down_dims": [512, 1024, 2048], "kernel": 5, "groups": 8, "step_width": 128}
_SMALL_TRANSFORMER = {"type": "transformer", "layers": 4, "heads": 4, "width": 128}
_SMALL_UNET = {"type": "conditional_unet1d", "down_dims": [32, 64, 128], "kernel": 5, "groups": 8, "step_width": 64}

_PUSHT = Architecture("dp", cameras=1, image_px=(96, 96), history=2, state=2, horizon=10, actions=2)
_TRANSPORT = Architecture("dp-plus", cameras=4, image_px=(84, 84), history=2, state=18, horizon=10, actions=20)
_UNET_HORIZON = 16

RECIPES: dict[str, ArchitecturePreset] = {
    recipe.architecture.name: recipe
    for recipe in (
        ArchitecturePreset(_PUSHT, _RESNET, _TRANSFORMER),
        ArchitecturePreset(replace(_PUSHT, name="dp-cnn", horizon=_UNET_HORIZON), _RESNET, _UNET),
        ArchitecturePreset(_TRANSPORT, _RESNET, {**_TRANSFORMER, "width": 768}),
        ArchitecturePreset(replace(_TRANSPORT, name="dp-cnn-plus", horizon=_UNET_HORIZON), _RESNET, _UNET),
        ArchitecturePreset(replace(_PUSHT, name="dp-small"), _SMALL_RESNET, _SMALL_TRANSFORMER),
        ArchitecturePreset(replace(_PUSHT, name="dp-cnn-small", horizon=_UNET_HORIZON), _SMALL_RESNET, _SMALL_UNET),
    )
}


def make_policy(name: str, *, seed: int, sampler: SamplerName = "ddpm", steps: int = TRAINING_STEPS) -> DiffusionPolicy:
    """A policy of RECIPES with random weights from `seed`, in evaluation mode; its actions lie in [-1, 1].

    DDPM counts as trained with `steps` steps (40, 100 and 160 in Auras figure 10), DDIM with 100. The caller's random
    state does not change. Raises ValueError, naming what is unknown.
    """
    if name not in RECIPES:
        raise ValueError(f"policy '{name}' is not known; known: {', '.join(RECIPES)}")
    return policy_of(RECIPES[name], seed=seed, sampler=sampler, steps=steps)


def policy_of(
    recipe: ArchitecturePreset, *, seed: int, sampler: SamplerName = "ddpm", steps: int = TRAINING_STEPS
) -> DiffusionPolicy:
    """`make_policy` for any recipe."""
    shape = recipe.architecture
    training_steps = steps if sampler == "ddpm" else TRAINING_STEPS
    table = make_sampler(sampler, steps, PREDICTION, training_steps, SPACING)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        encoder = build_encoder(recipe.encoder)
        condition = shape.history * shape.instant(encoder.features)
        network = build_network(recipe.network, shape.actions, condition, shape.horizon, shape.history)
    return DiffusionPolicy(encoder, network, table, unit(shape)).eval().requires_grad_(False)
