"""The vision transformer in a folder's `vision_config`, by transformers' keys."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.vlm.form import GENERAL
from auras_ros.models.vit import Activation, VitConfig

ACTIVATIONS: dict[str, Activation] = {"gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu", "gelu": "gelu"}


def tower(read: ConfigReader, types: tuple[str, ...], default: VitConfig, ignored: Set[str] = frozenset()) -> VitConfig:
    """default: what a missing key has, and the kind of network. Raises ModelConfigError."""
    read.only("model_type", *types)
    read.only("num_channels", 3)
    usual = next(name for name, each in ACTIVATIONS.items() if each == default.activation)
    made = replace(
        default,
        image_px=read.integer("image_size", default.image_px),
        patch_px=read.integer("patch_size", default.patch_px),
        width=read.integer("hidden_size", default.width),
        depth=read.integer("num_hidden_layers", default.depth),
        heads=read.integer("num_attention_heads", default.heads),
        hidden=read.integer("intermediate_size", default.hidden),
        activation=ACTIVATIONS[read.only("hidden_act", usual, *ACTIVATIONS)],
        norm_eps=read.number("layer_norm_eps", default.norm_eps),
    )
    read.finish(GENERAL | ignored | {"tie_word_embeddings"})
    return made
