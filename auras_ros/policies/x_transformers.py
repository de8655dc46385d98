"""The checkpoint family `x-transformers`: a small autoregressive policy with that library's decoder.

Like `autoregressive_family.Autoregressive`, except for the decoder: the manifest gives the library's own keywords. The
decoder is checked when the networks are built (`models.x_check`); the library is not imported before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.models.x_decoder import XDecoder
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive_family import Autoregressive
from auras_ros.policies.family import check_keys, counted
from auras_ros.policies.networks import build_encoder
from auras_ros.policies.observation_tokens import ObservationTokens

KEYS = {"tokens", "bins", "decoder"}
OPTIONAL = {"wrapper"}


class XTransformers(Autoregressive):
    """A plan has no settings. network: tokens (embeddings of one instant), bins (of a channel's range; the vocabulary),
    decoder and optionally wrapper (keywords of the library's Decoder and TransformerWrapper)."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_keys(network, KEYS, OPTIONAL)
        for key in ("decoder", "wrapper"):
            if not isinstance(network.get(key, {}), Mapping):
                raise TypeError(f"network: {key}: {network[key]!r} is not an object")
        sizes = {"tokens": network["tokens"], "bins": network["bins"], "horizon": architecture.horizon}
        for key, size in sizes.items():
            counted(f"network: {key}", size)
        seen, before = build_encoder(encoder, architecture.cameras), architecture.history * network["tokens"]
        steps = architecture.horizon * architecture.actions
        try:
            decoder = XDecoder(network["bins"], steps, network["decoder"], network.get("wrapper"), before)
        except ImportError as error:
            raise ValueError(f"network: the x-transformers library is not installed: {error}") from error
        inputs = architecture.instant(seen.features)
        prefix = ObservationTokens(seen, architecture.history, inputs, network["tokens"], decoder.width)
        return nn.ModuleDict({"prefix": prefix, "decoder": decoder})
