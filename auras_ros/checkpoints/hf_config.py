"""Reads the `config.json` of published folders: Llama, OpenVLA. Pure functions of the parsed mapping.

A missing key has the value that the published implementation gives it. A value that would change the arithmetic and is
not implemented here is refused by name. The loaders read the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from auras_ros.checkpoints.config_reader import ConfigReader, ModelConfigError
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.openvla import OpenVlaConfig
from auras_ros.models.presets import DINOV2_L, SIGLIP_SO400M
from auras_ros.models.rotary import RopeScaling
from auras_ros.models.vit import VitConfig

TIMM_VITS: Mapping[str, VitConfig] = {
    "vit_large_patch14_reg4_dinov2.lvd142m": DINOV2_L,
    "vit_so400m_patch14_siglip_224": SIGLIP_SO400M,
}


def llama_config(read: ConfigReader) -> LlamaConfig:
    """A Llama's configuration. Raises ModelConfigError, or ValueError, which names the size."""
    read.only("model_type", "llama")
    read.only("attention_bias", False)
    read.only("mlp_bias", False)
    theta, scaling = _rope(read)
    return replace(decoder_sizes(read), rope_theta=theta, rope_scaling=scaling)


def decoder_sizes(read: ConfigReader) -> LlamaConfig:
    """What Llama, Qwen2 and GLM-4 call by the same keys."""
    read.only("hidden_act", "silu")
    heads = read.integer("num_attention_heads", 32)
    width = read.integer("hidden_size", 4096)
    head_dim = read.integer("head_dim", width // max(heads, 1))
    return LlamaConfig(
        vocabulary=read.integer("vocab_size", 32000),
        width=width,
        layers=read.integer("num_hidden_layers", 32),
        heads=heads,
        kv_heads=read.integer("num_key_value_heads", heads),
        hidden=read.integer("intermediate_size", 11008),
        head_dim=None if head_dim * heads == width else head_dim,
        norm_eps=read.number("rms_norm_eps", 1e-6),
        tied=read.only("tie_word_embeddings", False, True),
    )


def required_sizes(read: ConfigReader) -> LlamaConfig:
    """As `decoder_sizes`, whose defaults are Llama's, but each key must be there."""
    for key in (
        "num_attention_heads", "num_key_value_heads", "hidden_size", "num_hidden_layers", "intermediate_size",
        "vocab_size",
    ):  # fmt: skip
        read.integer(key)
    return decoder_sizes(read)


def _rope(read: ConfigReader) -> tuple[float, RopeScaling | None]:
    """Base and scaling: from `rope_parameters`, or from the older `rope_theta` and `rope_scaling`."""
    older = read.number("rope_theta", 10000.0, least=1.0)
    key = "rope_scaling" if read.get("rope_parameters") is None else "rope_parameters"
    if read.get(key) is None:
        return older, None
    rope = read.inner(key)
    theta = rope.number("rope_theta", older, least=1.0)
    rope.only("partial_rotary_factor", 1.0, 1)
    scaling = None
    if rope.only("rope_type" if "rope_type" in rope.values else "type", "default", "llama3") == "llama3":
        factor, low, high = (rope.number(each) for each in ("factor", "low_freq_factor", "high_freq_factor"))
        scaling = RopeScaling(factor, low, high, int(rope.number("original_max_position_embeddings")))
    rope.finish({"type", "original_max_position_embeddings"})
    return theta, scaling


def openvla_config(values: Mapping[str, Any]) -> OpenVlaConfig:
    """An OpenVLA folder's configuration: `timm_model_ids` names the two encoders, `text_config` is the Llama's.

    Published folders leave the values of Llama 2 7B out of `text_config`. They do give model type and vocabulary, so an
    empty `text_config` is a mistake.
    """
    read = ConfigReader(values, "config")
    read.only("model_type", "openvla", "prismatic")
    read.only("use_fused_vision_backbone", True)
    ids, sizes = read.pair("timm_model_ids", str), read.pair("image_sizes", int)
    for name in ids:
        if name not in TIMM_VITS:
            raise ModelConfigError(f"config.timm_model_ids: '{name}' is not known; known: {', '.join(TIMM_VITS)}")
    others = values.get("timm_override_act_layers")
    if others is not None and (not isinstance(others, list) or any(each is not None for each in others)):
        raise ModelConfigError(f"config.timm_override_act_layers: {others!r} is not supported; expected [null, null]")
    text = ConfigReader(values.get("text_config"), "config.text_config")
    language = llama_config(text)
    for key in ("model_type", "vocab_size"):
        if text.values.get(key) is None:
            raise ModelConfigError(f"config.text_config.{key}: missing: it must say which language model it is")
    dinov2, siglip = (replace(TIMM_VITS[name], image_px=px) for name, px in zip(ids, sizes, strict=True))
    return OpenVlaConfig(dinov2, siglip, language)
