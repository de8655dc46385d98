"""Tensor names of published folders that no loader reads -> our modules' names: CLIP, GPT-NeoX, LLaVA, TinyVLA.

Parity tests fill our networks with the weights of transformers' ones by these rules. A rule gives the name of our
parameter; the three projections of a CLIP layer are parts 0 to 2 of one: "attn.qkv.weight#0".
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from auras_ros.checkpoints.hf_names import Rule, TensorNameError, llama_rule, of_layer, prefixed
from auras_ros.models.gpt_neox import GptNeoxConfig
from auras_ros.models.rt2 import Rt2Config
from auras_ros.models.tinyvla import TinyVlaConfig
from auras_ros.models.vit import VitConfig

_NEOX_LAYER = (
    r"layers\.(\d+)\.((?:attention\.(?:query_key_value|dense)|mlp\.dense_(?:h_to_4h|4h_to_h)|input_layernorm|"
    r"post_attention_layernorm)\.(?:weight|bias)|attention\.(?:bias|masked_bias|rotary_emb\.inv_freq))"
)
_NEOX_UNUSED = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")
_CLIP_LAYER = r"encoder\.layers\.(\d+)\.(layer_norm[12]|self_attn\.(?:[qkv]|out)_proj|mlp\.fc[12])\.(weight|bias)"
_CLIP_OTHER = {
    "embeddings.class_embedding": "cls_token",
    "embeddings.patch_embedding.weight": "patch_embed.proj.weight",
    "embeddings.position_embedding.weight": "pos_embed",
    "pre_layrnorm.weight": "norm_pre.weight",  # spelt so
    "pre_layrnorm.bias": "norm_pre.bias",
}
_CLIP_UNUSED = ("post_layernorm.weight", "post_layernorm.bias", "embeddings.position_ids")
_CLIP_PARTS = {"layer_norm1": "norm1", "layer_norm2": "norm2", "self_attn.out_proj": "attn.proj"}
_QKV = {"self_attn.q_proj": "#0", "self_attn.k_proj": "#1", "self_attn.v_proj": "#2"}


def gpt_neox_rule(config: GptNeoxConfig) -> Rule:
    """Names as a Hugging Face GPT-NeoX's, without the `gpt_neox.` before them; the head under either of its names."""

    def rule(name: str) -> str | None:
        if name in ("embed_out.weight", "lm_head.weight"):
            return "embed_out.weight" if config.head else None
        if name in ("embed_in.weight", "final_layer_norm.weight", "final_layer_norm.bias"):
            return name
        _, (rest,) = of_layer(_NEOX_LAYER, name, config.layers)
        return None if rest in _NEOX_UNUSED else name

    return rule


def clip_rule(config: VitConfig) -> Rule:
    """Names as a Hugging Face CLIP vision model's, without the `vision_model.` before them."""

    def rule(name: str) -> str | None:
        if name in _CLIP_OTHER:
            return _CLIP_OTHER[name]
        if name in _CLIP_UNUSED:
            return None
        layer, (part, kind) = of_layer(_CLIP_LAYER, name, config.depth)
        here = f"attn.qkv.{kind}{_QKV[part]}" if part in _QKV else f"{_CLIP_PARTS.get(part, part)}.{kind}"
        return f"layers.{layer}.{here}" if layer < config.built else None

    return rule


def llava_rule(config: Rt2Config) -> Rule:
    """Names of transformers' LLaVA -> `build_rt2`'s."""
    return prefixed(
        ("model.vision_tower.", "vision.", clip_rule(config.vision)),
        ("model.multi_modal_projector.", "projector.", _linear({"linear_1": "linear_1", "linear_2": "linear_2"})),
        ("model.language_model.", "language.", llama_rule(config.language)),
        ("", "language.", llama_rule(config.language)),
    )


def tinyvla_rule(config: TinyVlaConfig) -> Rule:
    """Names of TinyVLA, whose `embed_out` is the head, -> `model`, `condition` and `network`."""
    return prefixed(
        ("gpt_neox.vision_tower.vision_model.", "model.vision.", clip_rule(config.vision)),
        ("gpt_neox.mm_projector.", "model.projector.", _linear({"0": "linear_1", "2": "linear_2"})),
        ("gpt_neox.", "model.language.", gpt_neox_rule(config.language)),
        ("embed_out.norm_after_pool.", "condition.norm_after_pool.", str),
        ("embed_out.combine.", "condition.combine.", str),
        ("embed_out.", "network.", str),
    )


def _linear(layers: Mapping[str, str]) -> Rule:
    """The folder's names of linear layers -> ours."""

    def rule(name: str) -> str:
        layer, _, kind = name.rpartition(".")
        if layer not in layers or kind not in ("weight", "bias"):
            raise TensorNameError(f"'{name}' is not known")
        return f"{layers[layer]}.{kind}"

    return rule


def rename(tensors: Mapping[str, Tensor], rule: Rule, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A folder's tensors under our names. `wanted`: the model's `state_dict()`, whose values may be on "meta".

    Raises TensorNameError for a name without a place, two for one place, a part or parameter that is missing, a shape.
    """
    found: dict[str, str] = {}
    for name in tensors:
        place = rule(name)
        if place is None:
            continue
        if place.partition("#")[0] not in wanted:
            raise TensorNameError(f"tensor '{name}' belongs to '{place}', which this model does not have")
        if (other := found.setdefault(place, name)) != name:
            raise TensorNameError(f"tensors '{other}' and '{name}' are both '{place}'")
    made = {}
    for name, tensor in wanted.items():
        places = [name] if name in found else [f"{name}#{part}" for part in range(3)]
        if missing := [place for place in places if place not in found]:
            raise TensorNameError(f"no tensor for '{missing[0] if len(missing) < 3 else name}'")
        whole = torch.cat([tensors[found[place]] for place in places]) if places[1:] else tensors[found[name]]
        whole = whole[(None,) * (tensor.dim() - whole.dim())]
        if whole.shape != tensor.shape:
            got, expected = list(whole.shape), list(tensor.shape)
            raise TensorNameError(f"tensor '{found[places[0]]}' makes '{name}' of shape {got}, expected {expected}")
        made[name] = whole
    return made
