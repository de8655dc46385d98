"""Maps tensor names of published OpenVLA folders to names in our modules. Pure functions of names; the loaders read the
files.

A rule gives a tensor's name here, or says that it is known and not needed (layers behind the one whose features are
used, pooling heads, tables that are recomputed). It never guesses: a name that fits no line is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from auras_ros.models.llama import LlamaConfig
from auras_ros.models.openvla import OpenVlaConfig
from auras_ros.models.vit import VitConfig


class TensorNameError(ValueError):
    """Tensors that do not fit the model; the text names the tensor."""


Rule = Callable[[str], str | None]  # the folder's name -> our parameter's; None if it is not needed

_LLAMA_LAYER = (
    r"layers\.(\d+)\.((?:self_attn\.[qkvo]_proj|mlp\.(?:gate|up|down)_proj|input_layernorm|post_attention_layernorm)"
    r"\.weight|self_attn\.rotary_emb\.inv_freq)"
)
_TIMM_LAYER = r"blocks\.(\d+)\.((?:norm[12]|attn\.(?:qkv|proj)|mlp\.fc[12])\.(?:weight|bias)|ls[12]\.\w+)"
_TIMM_OTHER = r"cls_token|reg_token|pos_embed|patch_embed\.proj\.(?:weight|bias)|norm_pre\.(?:weight|bias)"
_TIMM_UNUSED = r"(?:norm|fc_norm)\.(?:weight|bias)|attn_pool\..+"


def llama_rule(config: LlamaConfig) -> Rule:
    """Names of a Hugging Face Llama, without the `model.` prefix."""

    def rule(name: str) -> str | None:
        if name == "lm_head.weight":
            return None if config.tied else name
        if name in ("embed_tokens.weight", "norm.weight"):
            return name
        _, (rest,) = of_layer(_LLAMA_LAYER, name, config.layers)
        return None if rest.endswith("inv_freq") else name

    return rule


def timm_rule(config: VitConfig) -> Rule:
    """timm's names; layer scale also under its name in OpenVLA's folders (`scale_factor`)."""

    def rule(name: str) -> str | None:
        if re.fullmatch(_TIMM_OTHER, name):
            return name
        if re.fullmatch(_TIMM_UNUSED, name):
            return None
        layer, (rest,) = of_layer(_TIMM_LAYER, name, config.depth)
        rest = re.sub(r"(ls[12])\.scale_factor", r"\1.gamma", rest)
        return f"layers.{layer}.{rest}" if layer < config.built else None

    return rule


def openvla_rule(config: OpenVlaConfig) -> Rule:
    """Names of an OpenVLA folder -> names of `build_openvla`."""
    return prefixed(
        ("vision_backbone.featurizer.", "vision.featurizer.", timm_rule(config.dinov2)),
        ("vision_backbone.fused_featurizer.", "vision.fused_featurizer.", timm_rule(config.siglip)),
        ("projector.", "projector.", _projector_rule),
        ("language_model.model.", "language.", llama_rule(config.language)),
        ("language_model.", "language.", llama_rule(config.language)),
    )


def prefixed(*lines: tuple[str, str, Rule]) -> Rule:
    """The first line whose prefix fits decides: (prefix there, prefix here, rule for the rest)."""

    def rule(name: str) -> str | None:
        for there, here, rest in lines:
            if name.startswith(there):
                try:
                    place = rest(name[len(there) :])
                except TensorNameError as error:
                    raise TensorNameError(f"tensor '{name}': {error}") from error
                return None if place is None else here + place
        raise TensorNameError(f"tensor '{name}' belongs to no part of this model")

    return rule


def _projector_rule(name: str) -> str:
    if not re.fullmatch(r"fc[123]\.(?:weight|bias)", name):
        raise TensorNameError(f"'{name}' is not known")
    return name


def of_layer(pattern: str, name: str, layers: int) -> tuple[int, list[str]]:
    """The layer in a name, and the pattern's other groups."""
    match = re.fullmatch(pattern, name)
    if match is None:
        raise TensorNameError(f"'{name}' is not known")
    layer, *rest = match.groups()
    if int(layer) >= layers:
        raise TensorNameError(f"'{name}' is of layer {layer}, but there are {layers}")
    return int(layer), rest


def siglip_name(name: str) -> str:
    """transformers' name of a tensor of `models.vit`."""
    if name == "pos_embed":
        return "embeddings.position_embedding.weight"
    if name.startswith("patch_embed."):
        return f"embeddings.patch_embedding.{name.removeprefix('patch_embed.proj.')}"
    name = name.replace(".norm1.", ".layer_norm1.").replace(".norm2.", ".layer_norm2.")
    return "encoder." + name.replace(".attn.qkv.", ".self_attn.qkv.").replace(".attn.proj.", ".self_attn.out_proj.")
