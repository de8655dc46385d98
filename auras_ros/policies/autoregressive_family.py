"""Small autoregressive policies as a family: an image encoder, and a decoder that writes tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.models.action_tokens import ActionTokens, Rt2Tokens
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.x_decoder import XDecoder
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive import AutoregressivePolicy, CausalDecoder, PrefixEncoder
from auras_ros.policies.family import Trained, check_keys, counted, known
from auras_ros.policies.networks import build_encoder
from auras_ros.policies.observation_tokens import ObservationTokens

DECODER_KEYS = {"layers", "heads", "width", "hidden", "tokens", "bins"}


class Autoregressive:
    """An image encoder, a few embeddings for each instant, and a decoder that writes tokens; a plan has no settings.

    network: layers, heads, width, hidden (of the decoder), tokens (embeddings of one instant), bins (of a channel's
    range; the vocabulary).
    """

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_keys(network, DECODER_KEYS)
        for key, size in network.items():
            counted(f"network: {key}", size)
        counted("horizon", architecture.horizon)
        seen, width, heads = build_encoder(encoder, architecture.cameras), network["width"], network["heads"]
        inputs = architecture.instant(seen.features)
        prefix = ObservationTokens(seen, architecture.history, inputs, network["tokens"], width)
        config = LlamaConfig(network["bins"], width, network["layers"], heads, heads, network["hidden"])
        return nn.ModuleDict({"prefix": prefix, "decoder": Llama(config)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> AutoregressivePolicy:
        prefix, decoder = networks["prefix"], networks["decoder"]
        assert isinstance(prefix, ObservationTokens)
        assert isinstance(decoder, Llama | XDecoder)
        codec = Rt2Tokens(trained.lower.tolist(), trained.upper.tolist(), first=0, bins=decoder.vocabulary)
        return token_policy(prefix, decoder, codec, trained, settings)


def token_policy(
    prefix: PrefixEncoder,
    decoder: CausalDecoder,
    codec: ActionTokens,
    trained: Trained,
    settings: Mapping[str, Any],
) -> AutoregressivePolicy:
    """A plan has no settings. Raises ValueError."""
    known(settings)
    if trained.kind != "min_max" or trained.executed is not None:
        raise ValueError("tokens are bins of a range: statistics must be min_max, and all actions are executed")
    return AutoregressivePolicy(prefix, decoder, codec, trained.architecture)
