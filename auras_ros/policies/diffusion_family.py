"""Diffusion policies as a family: an image encoder and a noise network, under a sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.denoising import make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.family import Trained, known
from auras_ros.policies.networks import build_encoder, build_network

SAMPLER_KEYS = {"sampler", "steps", "spacing", "clip", "corrected"}


class Diffusion:
    """An image encoder and a noise network; a plan is a sampler, its number of steps and their spacing."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        seen = build_encoder(encoder, architecture.cameras)
        condition = architecture.history * architecture.instant(seen.features)
        made = build_network(network, architecture.actions, condition, architecture.horizon, architecture.history)
        return nn.ModuleDict({"encoder": seen, "network": made})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> DiffusionPolicy:
        known(settings, SAMPLER_KEYS)
        table = make_sampler(
            settings["sampler"],
            settings["steps"],
            trained.prediction,
            trained.training_steps,
            settings.get("spacing", "linspace"),
            settings.get("clip", 1.0),
            settings.get("corrected", True),
        )
        bounds, shape = (trained.lower, trained.upper), trained.architecture
        parts = networks["encoder"], networks["network"], table, shape.horizon
        return DiffusionPolicy(*parts, *bounds, shape, trained.chunk)
