"""Diffusion policies as a family: an image encoder, a network over the horizon, and a denoising or flow sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.denoising import TRAINING_STEPS, Sampler, make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.family import Trained, known
from auras_ros.policies.flow_sampler import VELOCITY, FlowSampler
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
        return DiffusionPolicy(networks["encoder"], networks["network"], sampler_of(trained, settings), trained)


def sampler_of(trained: Trained, settings: Mapping[str, Any]) -> Sampler | FlowSampler:
    """The sampler of a plan. Raises KeyError or ValueError, naming the setting."""
    known(settings, SAMPLER_KEYS)
    if settings["sampler"] == FlowSampler.name:
        known(settings, {"sampler", "steps"}, "flow: key ")
        if trained.optional.get("prediction") != VELOCITY:
            raise ValueError(f"sampler: flow follows a velocity, which this network does not predict ({VELOCITY!r})")
        return FlowSampler(settings["steps"])
    return make_sampler(
        settings["sampler"],
        settings["steps"],
        trained.optional.get("prediction", "sample"),
        trained.optional.get("training_steps", TRAINING_STEPS),
        settings.get("spacing", "linspace"),
        settings.get("clip", 1.0),
        settings.get("corrected", True),
    )
