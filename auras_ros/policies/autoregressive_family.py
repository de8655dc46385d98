"""Small autoregressive policies as a family: an image encoder, and a decoder that writes tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.family import Trained, known
from auras_ros.policies.networks import build_encoder
from auras_ros.policies.observation_tokens import ObservationTokens

DECODER_KEYS = {"layers", "heads", "width", "hidden", "tokens", "bins"}


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
            seen, architecture.history, architecture.instant(seen.features), network["tokens"], width
        )
        config = LlamaConfig(network["bins"], width, network["layers"], heads, heads, network["hidden"])
        return nn.ModuleDict({"prefix": prefix, "decoder": Llama(config)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> AutoregressivePolicy:
        known(settings, set())
        if trained.kind != "min_max" or trained.executed is not None:
            raise ValueError("tokens are bins of a range: statistics must be min_max, and all actions are executed")
        shape, prefix, decoder = trained.architecture, networks["prefix"], networks["decoder"]
        assert isinstance(prefix, ObservationTokens)
        assert isinstance(decoder, Llama)
        codec = Rt2Tokens(trained.lower.tolist(), trained.upper.tolist(), first=0, bins=decoder.config.vocabulary)
        return AutoregressivePolicy(prefix, decoder, codec, shape.horizon, shape.actions, shape)
