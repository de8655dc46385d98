"""What a checkpoint's `type` stands for: which networks its manifest describes, and which policy its plans make.

A family is two functions of plain data; wrong descriptions are refused by name. Nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.policies.act import Act
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.denoising import TRAINING_STEPS, Prediction, make_sampler
from auras_ros.policies.diffusion import Architecture, DiffusionPolicy
from auras_ros.policies.flow_family import Flow
from auras_ros.policies.networks import build_encoder, build_network
from auras_ros.policies.observation_tokens import ObservationTokens
from auras_ros.policies.policy import Policy
from auras_ros.policies.tinyvla_family import TinyVla
from auras_ros.policies.vision_language_family import OpenVla, Rt2
from auras_ros.policies.x_transformers import XTransformers

ENTRY_POINTS = "auras_ros.policies"  # group of other packages' families: type = module:family
SAMPLER_KEYS = {"sampler", "steps", "spacing", "clip", "corrected"}
DECODER_KEYS = {"layers", "heads", "width", "hidden", "tokens", "bins"}


@dataclass(frozen=True)
class Trained:
    """What the networks were trained for.

    lower, upper: float64 [channels], what -1 and 1 of the networks mean in physical units; both kinds of statistics
    are this linear map (with mean and std, mean - std and mean + std). executed: the first of the horizon's actions
    that make a chunk, which is that of the newest observation's instant, and how many they are; None: all.
    """

    architecture: Architecture
    lower: torch.Tensor
    upper: torch.Tensor
    prediction: Prediction = "sample"
    training_steps: int = TRAINING_STEPS
    kind: str = "min_max"
    executed: tuple[int, int] | None = None

    @property
    def chunk(self) -> slice:
        """Which of the horizon's actions make a chunk: what a family's `finish` gives, of dimension 1."""
        if self.executed is None:
            return slice(0, self.architecture.horizon)
        first, count = self.executed
        return slice(first, first + count)

    @property
    def center(self) -> torch.Tensor:
        """What 0 of the networks means, float64 [channels]."""
        return (self.lower + self.upper) / 2

    @property
    def scale(self) -> torch.Tensor:
        """What 1 of the networks is worth, float64 [channels]."""
        return (self.upper - self.lower) / 2


class LoadedPolicy(Policy, Protocol):
    """A policy that is a module, as every family makes it."""

    def to(self, device: torch.device) -> Any: ...

    def eval(self) -> Any: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of the policy's shapes."""
        ...


class Family(Protocol):
    """`networks` raises TypeError, ValueError or RuntimeError, `policy` KeyError, TypeError or ValueError, by name."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        """With weights still random, from the manifest's descriptions."""
        ...

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> LoadedPolicy:
        """Under the settings of one plan; the networks are shared."""
        ...


class Diffusion:
    """An image encoder and a noise network; a plan is a sampler, its number of steps and their spacing."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        seen = build_encoder(encoder, architecture.cameras)
        condition = architecture.history * _instant(architecture, seen.features)
        made = build_network(network, architecture.actions, condition, architecture.horizon, architecture.history)
        return nn.ModuleDict({"encoder": seen, "network": made})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> DiffusionPolicy:
        _known(settings, SAMPLER_KEYS)
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


class Autoregressive:
    """An image encoder, a few embeddings for each instant, and a decoder that writes tokens; a plan has no settings.

    network: layers, heads, width, hidden (of the decoder), tokens (embeddings of one instant), bins (of a channel's
    range; the vocabulary).
    """

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        if not isinstance(network, Mapping):
            raise TypeError(f"network: {network!r} is not an object")
        for key in sorted(DECODER_KEYS ^ network.keys()):
            raise ValueError(f"network: '{key}' is {'missing' if key in DECODER_KEYS else 'unknown'}")
        for key, size in network.items():
            if type(size) is not int or size < 1:
                raise ValueError(f"network: {key}: {size!r} is not a whole number above zero")
        if type(architecture.horizon) is not int or architecture.horizon < 1:
            raise ValueError(f"horizon: {architecture.horizon!r} is not a whole number above zero")
        seen, width, heads = build_encoder(encoder, architecture.cameras), network["width"], network["heads"]
        prefix = ObservationTokens(
            seen, architecture.history, _instant(architecture, seen.features), network["tokens"], width
        )
        config = LlamaConfig(network["bins"], width, network["layers"], heads, heads, network["hidden"])
        return nn.ModuleDict({"prefix": prefix, "decoder": Llama(config)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> AutoregressivePolicy:
        _known(settings, set())
        if trained.kind != "min_max" or trained.executed is not None:
            raise ValueError("tokens are bins of a range: statistics must be min_max, and all actions are executed")
        shape, prefix, decoder = trained.architecture, networks["prefix"], networks["decoder"]
        assert isinstance(prefix, ObservationTokens)
        assert isinstance(decoder, Llama)
        codec = Rt2Tokens(trained.lower.tolist(), trained.upper.tolist(), first=0, bins=decoder.config.vocabulary)
        return AutoregressivePolicy(prefix, decoder, codec, shape.horizon, shape.actions, shape)


FAMILIES: Mapping[str, Family] = {
    "diffusion": Diffusion(),
    "autoregressive": Autoregressive(),
    "x-transformers": XTransformers(),
    "openvla": OpenVla(),
    "rt2": Rt2(),
    "tinyvla": TinyVla(),
    "flow": Flow(),
    "act": Act(),
}


def find(kind: object) -> Family:
    """The family of a checkpoint's `type`: ours, or of a package that has registered it. Raises ValueError by name."""
    if isinstance(kind, str) and kind in FAMILIES:
        return FAMILIES[kind]
    others = entry_points(group=ENTRY_POINTS)
    if not isinstance(kind, str) or kind not in others.names:
        raise ValueError(f"type '{kind}' is not known; there is {', '.join([*FAMILIES, *sorted(others.names)])}")
    (other,) = others.select(name=kind)
    try:
        family: Family = other.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"type '{kind}': entry point {other.value} cannot be loaded: {error}") from error
    return family


def _instant(architecture: Architecture, features: int) -> int:
    """Numbers that describe one instant: each camera's features and the state."""
    return architecture.cameras * features + architecture.state


def _known(settings: Mapping[str, Any], keys: set[str]) -> None:
    for key in sorted(settings.keys() - keys):
        raise ValueError(f"key '{key}' is unknown")
