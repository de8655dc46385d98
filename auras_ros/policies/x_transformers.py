"""The checkpoint family `x-transformers`: a small autoregressive policy whose decoder is that library's.

As `families.Autoregressive`, but for the decoder: the manifest gives the library's own keywords. What they make is
checked when the networks are built (`models.x_check`); nothing of the library is imported before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.x_decoder import XDecoder
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.family import Trained
from auras_ros.policies.networks import build_encoder
from auras_ros.policies.observation_tokens import ObservationTokens

KEYS = {"tokens", "bins", "decoder"}
OPTIONAL = {"wrapper"}


class XTransformers:
    """A plan has no settings. network: tokens (embeddings of one instant), bins (of a channel's range; the vocabulary),
    decoder and, where wanted, wrapper (keywords of the library's Decoder and TransformerWrapper)."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        if not isinstance(network, Mapping):
            raise TypeError(f"network: {network!r} is not an object")
        for key in sorted(KEYS ^ (network.keys() - OPTIONAL)):
            raise ValueError(f"network: '{key}' is {'missing' if key in KEYS else 'unknown'}")
        for key in ("decoder", "wrapper"):
            if not isinstance(network.get(key, {}), Mapping):
                raise TypeError(f"network: {key}: {network[key]!r} is not an object")
        sizes = {"tokens": network["tokens"], "bins": network["bins"], "horizon": architecture.horizon}
        for key, size in sizes.items():
            if type(size) is not int or size < 1:
                raise ValueError(f"network: {key}: {size!r} is not a whole number above zero")
        seen, before = build_encoder(encoder, architecture.cameras), architecture.history * network["tokens"]
        steps = architecture.horizon * architecture.actions
        try:
            decoder = XDecoder(network["bins"], steps, network["decoder"], network.get("wrapper"), before)
        except ImportError as error:
            raise ValueError(f"network: the x-transformers library is not there: {error}") from error
        inputs = architecture.cameras * seen.features + architecture.state
        prefix = ObservationTokens(seen, architecture.history, inputs, network["tokens"], decoder.width)
        return nn.ModuleDict({"prefix": prefix, "decoder": decoder})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> AutoregressivePolicy:
        for key in sorted(settings):
            raise ValueError(f"key '{key}' is unknown")
        if trained.kind != "min_max" or trained.executed is not None:
            raise ValueError("tokens are bins of a range: statistics must be min_max, and all actions are executed")
        shape, prefix, decoder = trained.architecture, networks["prefix"], networks["decoder"]
        assert isinstance(prefix, ObservationTokens)
        assert isinstance(decoder, XDecoder)
        codec = Rt2Tokens(trained.lower.tolist(), trained.upper.tolist(), first=0, bins=decoder.vocabulary)
        return AutoregressivePolicy(prefix, decoder, codec, shape.horizon, shape.actions, shape)
