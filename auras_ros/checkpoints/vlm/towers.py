"""The vision transformer in a folder's `vision_config`: SigLIP's or CLIP's keys, by transformers' names."""

from __future__ import annotations

from collections.abc import Set

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.vlm.form import GENERAL
from auras_ros.models.vit import Activation, VitConfig

ACTIVATIONS: dict[str, Activation] = {"gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu", "gelu": "gelu"}


def tower(read: ConfigReader, types: tuple[str, ...], ignored: Set[str] = frozenset()) -> VitConfig:
    """With transformers' defaults of SigLIP in Idefics3. Raises ModelConfigError."""
    read.only("model_type", *types)
    read.only("num_channels", 3)
    made = VitConfig(
        image_px=read.integer("image_size", 224),
        patch_px=read.integer("patch_size", 32),
        width=read.integer("hidden_size", 1152),
        depth=read.integer("num_hidden_layers", 12),
        heads=read.integer("num_attention_heads", 16),
        hidden=read.integer("intermediate_size", 3072),
        activation=ACTIVATIONS[read.only("hidden_act", *ACTIVATIONS)],
        norm_eps=read.number("layer_norm_eps", 1e-6),
    )
    read.finish(GENERAL | ignored | {"tie_word_embeddings"})
    return made


def clip_tower(read: ConfigReader, types: tuple[str, ...], feature_layer: int) -> VitConfig:
    """With the defaults of LLaVA's configuration. Raises ModelConfigError."""
    read.only("model_type", *types)
    read.only("num_channels", 3)
    made = VitConfig(
        image_px=read.integer("image_size", 336),
        patch_px=read.integer("patch_size", 14),
        width=read.integer("hidden_size", 1024),
        depth=read.integer("num_hidden_layers", 24),
        heads=read.integer("num_attention_heads", 16),
        hidden=read.integer("intermediate_size", 4096),
        activation=ACTIVATIONS[read.only("hidden_act", "quick_gelu", "gelu", "gelu_pytorch_tanh")],
        class_token=True,
        class_position=True,
        pre_norm=True,
        patch_bias=False,
        norm_eps=read.number("layer_norm_eps", 1e-5),
        feature_layer=feature_layer,
    )
    read.finish(GENERAL | {"projection_dim", "vocab_size", "tie_word_embeddings"})
    return made
