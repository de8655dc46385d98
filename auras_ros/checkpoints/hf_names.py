"""Tensor names of published folders -> the names of our own modules. Pure functions of names; files are the loaders'.

A rule says where a tensor belongs, or that it is known and not needed here (layers behind the one whose features are
taken, pooling heads, tables that are recomputed). It never guesses: a name that no line of it fits is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.models.gpt_neox import GptNeoxConfig
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.openvla import OpenVlaConfig
from auras_ros.models.rt2 import Rt2Config
from auras_ros.models.tinyvla import TinyVlaConfig
from auras_ros.models.vit import VitConfig


class TensorNameError(ValueError):
    """Tensors that do not fit the model; the text names the tensor."""


class ParameterSlot(NamedTuple):
    """The parameter a tensor fills; one of `parts` laid one after another; `lead` dimensions of size 1 in front."""

    name: str
    part: int = 0
    parts: int = 1
    lead: int = 0


Rule = Callable[[str], ParameterSlot | None]

_LLAMA_LAYER = (
    r"layers\.(\d+)\.((?:self_attn\.[qkvo]_proj|mlp\.(?:gate|up|down)_proj|input_layernorm|post_attention_layernorm)"
    r"\.weight|self_attn\.rotary_emb\.inv_freq)"
)
_NEOX_LAYER = (
    r"layers\.(\d+)\.((?:attention\.(?:query_key_value|dense)|mlp\.dense_(?:h_to_4h|4h_to_h)|input_layernorm|"
    r"post_attention_layernorm)\.(?:weight|bias)|attention\.(?:bias|masked_bias|rotary_emb\.inv_freq))"
)
_NEOX_UNUSED = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")
_TIMM_LAYER = r"blocks\.(\d+)\.((?:norm[12]|attn\.(?:qkv|proj)|mlp\.fc[12])\.(?:weight|bias)|ls[12]\.\w+)"
_TIMM_OTHER = r"cls_token|reg_token|pos_embed|patch_embed\.proj\.(?:weight|bias)|norm_pre\.(?:weight|bias)"
_TIMM_UNUSED = r"(?:norm|fc_norm)\.(?:weight|bias)|attn_pool\..+"
_CLIP_LAYER = r"encoder\.layers\.(\d+)\.(layer_norm[12]|self_attn\.(?:[qkv]|out)_proj|mlp\.fc[12])\.(weight|bias)"
_CLIP_OTHER = {
    "embeddings.class_embedding": ParameterSlot("cls_token", lead=2),
    "embeddings.patch_embedding.weight": ParameterSlot("patch_embed.proj.weight"),
    "embeddings.position_embedding.weight": ParameterSlot("pos_embed", lead=1),
    "pre_layrnorm.weight": ParameterSlot("norm_pre.weight"),  # spelt so
    "pre_layrnorm.bias": ParameterSlot("norm_pre.bias"),
}
_CLIP_UNUSED = ("post_layernorm.weight", "post_layernorm.bias", "embeddings.position_ids")
_CLIP_PARTS = {
    "layer_norm1": ParameterSlot("norm1"),
    "layer_norm2": ParameterSlot("norm2"),
    "self_attn.q_proj": ParameterSlot("attn.qkv", 0, 3),
    "self_attn.k_proj": ParameterSlot("attn.qkv", 1, 3),
    "self_attn.v_proj": ParameterSlot("attn.qkv", 2, 3),
    "self_attn.out_proj": ParameterSlot("attn.proj"),
    "mlp.fc1": ParameterSlot("mlp.fc1"),
    "mlp.fc2": ParameterSlot("mlp.fc2"),
}


def llama_rule(config: LlamaConfig) -> Rule:
    """Names as a Hugging Face Llama's, without the `model.` before them."""

    def rule(name: str) -> ParameterSlot | None:
        if name == "lm_head.weight":
            return None if config.tied else ParameterSlot(name)
        if name in ("embed_tokens.weight", "norm.weight"):
            return ParameterSlot(name)
        _, (rest,) = _of_layer(_LLAMA_LAYER, name, config.layers)
        return None if rest.endswith("inv_freq") else ParameterSlot(name)

    return rule


def gpt_neox_rule(config: GptNeoxConfig) -> Rule:
    """Names as a Hugging Face GPT-NeoX's, without the `gpt_neox.` before them; the head under either of its names."""

    def rule(name: str) -> ParameterSlot | None:
        if name in ("embed_out.weight", "lm_head.weight"):
            return ParameterSlot("embed_out.weight") if config.head else None
        if name in ("embed_in.weight", "final_layer_norm.weight", "final_layer_norm.bias"):
            return ParameterSlot(name)
        _, (rest,) = _of_layer(_NEOX_LAYER, name, config.layers)
        return None if rest in _NEOX_UNUSED else ParameterSlot(name)

    return rule


def timm_rule(config: VitConfig) -> Rule:
    """Names as timm's; layer scale also as OpenVLA's folders call it (`scale_factor`)."""

    def rule(name: str) -> ParameterSlot | None:
        if re.fullmatch(_TIMM_OTHER, name):
            return ParameterSlot(name)
        if re.fullmatch(_TIMM_UNUSED, name):
            return None
        layer, (rest,) = _of_layer(_TIMM_LAYER, name, config.depth)
        rest = re.sub(r"(ls[12])\.scale_factor", r"\1.gamma", rest)
        return ParameterSlot(f"layers.{layer}.{rest}") if layer < config.built else None

    return rule


def clip_rule(config: VitConfig) -> Rule:
    """Names as a Hugging Face CLIP vision model's, without the `vision_model.` before them."""

    def rule(name: str) -> ParameterSlot | None:
        if name in _CLIP_OTHER:
            return _CLIP_OTHER[name]
        if name in _CLIP_UNUSED:
            return None
        layer, (part, kind) = _of_layer(_CLIP_LAYER, name, config.depth)
        place = _CLIP_PARTS[part]
        return place._replace(name=f"layers.{layer}.{place.name}.{kind}") if layer < config.built else None

    return rule


def openvla_rule(config: OpenVlaConfig) -> Rule:
    """Names of an OpenVLA folder -> `build_openvla`'s."""
    return _prefixed(
        ("vision_backbone.featurizer.", "vision.featurizer.", timm_rule(config.dinov2)),
        ("vision_backbone.fused_featurizer.", "vision.fused_featurizer.", timm_rule(config.siglip)),
        ("projector.", "projector.", _linear("fc1", "fc2", "fc3")),
        ("language_model.model.", "language.", llama_rule(config.language)),
        ("language_model.", "language.", llama_rule(config.language)),
    )


def llava_rule(config: Rt2Config) -> Rule:
    """Names of a LLaVA 1.5 folder -> `build_rt2`'s: as the Hugging Face implementation writes or holds them, or as
    LLaVA's own code does (whose folders may leave the vision tower out: it is a CLIP folder's then)."""
    clip, llama = clip_rule(config.vision), llama_rule(config.language)
    projector = _linear("linear_1", "linear_2")
    return _prefixed(
        ("model.vision_tower.vision_tower.vision_model.", "vision.", clip),
        *((f"{top}vision_tower.{inner}", "vision.", clip) for top in ("model.", "") for inner in ("vision_model.", "")),
        *((f"{top}multi_modal_projector.", "projector.", projector) for top in ("model.", "")),
        ("model.mm_projector.", "projector.", _numbered({"0": "linear_1", "2": "linear_2"})),
        *((f"{top}.", "language.", llama) for top in ("language_model.model", "model.language_model")),
        *((f"{top}.", "language.", llama) for top in ("language_model", "model")),
        ("", "language.", _only("lm_head.weight", llama)),
    )


def llava_pythia_rule(config: TinyVlaConfig) -> Rule:
    """Names of a LLaVA-Pythia folder -> `build_llava_pythia`'s."""
    language = _only("embed_out.weight", gpt_neox_rule(config.language))
    return _prefixed(*_llava_pythia(config, ""), ("", "language.", language))


def tinyvla_rule(config: TinyVlaConfig) -> Rule:
    """Names of TinyVLA, whose `embed_out` is the head, -> `model`, `condition` and `network`."""
    return _prefixed(
        *_llava_pythia(config, "model."),
        ("embed_out.norm_after_pool.", "condition.norm_after_pool.", ParameterSlot),
        ("embed_out.combine.", "condition.combine.", ParameterSlot),
        ("embed_out.", "network.", ParameterSlot),
    )


def _llava_pythia(config: TinyVlaConfig, here: str) -> list[tuple[str, str, Rule]]:
    return [
        ("gpt_neox.vision_tower.vision_model.", f"{here}vision.", clip_rule(config.vision)),
        ("gpt_neox.mm_projector.", f"{here}projector.", _numbered({"0": "linear_1", "2": "linear_2"})),
        ("gpt_neox.", f"{here}language.", gpt_neox_rule(config.language)),
    ]


def rename(tensors: Mapping[str, Tensor], rule: Rule, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A folder's tensors under our names. `wanted`: the model's `state_dict()`, whose values may be on "meta".

    Raises TensorNameError for a name without a place, two for one place, a part or parameter that is missing, a shape.
    """
    found: dict[str, dict[int, str]] = {}
    places: dict[str, ParameterSlot] = {}
    for name in tensors:
        place = rule(name)
        if place is None:
            continue
        if place.name not in wanted:
            raise TensorNameError(f"tensor '{name}' belongs to '{place.name}', which this model does not have")
        places[place.name] = place
        other = found.setdefault(place.name, {}).setdefault(place.part, name)
        if other != name:
            raise TensorNameError(f"tensors '{other}' and '{name}' are both '{place.name}'")
    for name in wanted:
        if name not in found:
            raise TensorNameError(f"no tensor for '{name}'")
        if len(found[name]) < places[name].parts:
            raise TensorNameError(
                f"'{name}': of its {places[name].parts} parts there is {sorted(found[name].values())}"
            )
    return {name: _fitted(tensors, found[name], places[name], wanted[name]) for name in wanted}


def _fitted(tensors: Mapping[str, Tensor], names: Mapping[int, str], place: ParameterSlot, wanted: Tensor) -> Tensor:
    parts = [tensors[names[part]] for part in range(place.parts)]
    whole = parts[0] if place.parts == 1 else torch.cat(parts)
    whole = whole[(None,) * place.lead]
    if whole.shape != wanted.shape:
        got, expected = list(whole.shape), list(wanted.shape)
        raise TensorNameError(f"tensor '{names[0]}' makes '{place.name}' of shape {got}, expected {expected}")
    return whole


def _prefixed(*lines: tuple[str, str, Rule]) -> Rule:
    """The first line whose prefix fits decides: (prefix there, prefix here, rule for the rest)."""

    def rule(name: str) -> ParameterSlot | None:
        for there, here, rest in lines:
            if name.startswith(there):
                try:
                    place = rest(name[len(there) :])
                except TensorNameError as error:
                    raise TensorNameError(f"tensor '{name}': {error}") from error
                return None if place is None else place._replace(name=here + place.name)
        raise TensorNameError(f"tensor '{name}' belongs to no part of this model")

    return rule


def _linear(*layers: str) -> Rule:
    return _numbered({layer: layer for layer in layers})


def _numbered(layers: Mapping[str, str]) -> Rule:
    def rule(name: str) -> ParameterSlot | None:
        layer, _, kind = name.rpartition(".")
        if layer not in layers or kind not in ("weight", "bias"):
            raise TensorNameError(f"'{name}' is not known")
        return ParameterSlot(f"{layers[layer]}.{kind}")

    return rule


def _only(known: str, rest: Rule) -> Rule:
    def rule(name: str) -> ParameterSlot | None:
        if name != known:
            raise TensorNameError("belongs to no part of this model")
        return rest(name)

    return rule


def _of_layer(pattern: str, name: str, layers: int) -> tuple[int, list[str]]:
    """The layer that a name is of, and the rest of what the pattern catches."""
    match = re.fullmatch(pattern, name)
    if match is None:
        raise TensorNameError(f"'{name}' is not known")
    layer, *rest = match.groups()
    if int(layer) >= layers:
        raise TensorNameError(f"'{name}' is of layer {layer}, but there are {layers}")
    return int(layer), rest
