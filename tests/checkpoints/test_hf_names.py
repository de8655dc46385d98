"""Every name of a published folder has its place or is known to be of no use; every other one is refused by name.

Guards: a tensor passed over in silence; one checkpoint's tensor in another's place.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.hf_names import TensorNameError, llama_rule, openvla_rule
from auras_ros.models.llama import Llama
from auras_ros.models.openvla import build_openvla
from auras_ros.models.presets import LLAMAS, OPENVLAS
from tests.models import published
from tests.models.hf_names import rename

OPENVLA, LLAMA = OPENVLAS["openvla-tiny"], LLAMAS["llama-tiny"]


def openvla_folder() -> dict[str, Tensor]:
    """All tensors of a tiny OpenVLA folder, each with values of its own."""
    vision = published.dinov2_as_timm(published.dinov2(OPENVLA.dinov2))
    fused = published.siglip_as_timm(published.siglip(OPENVLA.siglip))
    named = {f"vision_backbone.featurizer.{name}": tensor for name, tensor in vision.items()}
    named |= {f"vision_backbone.fused_featurizer.{name}": tensor for name, tensor in fused.items()}
    projector = published.randomise(build_openvla(OPENVLA).projector)
    named |= {f"projector.{name}": tensor for name, tensor in projector.state_dict().items()}
    language = published.llama(OPENVLA.language).state_dict()
    return named | {f"language_model.{name}": tensor for name, tensor in language.items()}


@pytest.fixture(scope="module")
def folder() -> dict[str, Tensor]:
    pytest.importorskip("transformers")
    return openvla_folder()


def wanted() -> dict[str, Tensor]:
    with torch.device("meta"):
        return build_openvla(OPENVLA).state_dict()


def test_an_openvla_folder_fills_the_model_and_leaves_only_what_is_not_built(folder: dict[str, Tensor]) -> None:
    made = rename(folder, openvla_rule(OPENVLA), wanted())
    build_openvla(OPENVLA).load_state_dict(made)
    rule = openvla_rule(OPENVLA)
    unused = {name.removeprefix("vision_backbone.") for name in folder if rule(name) is None}
    last = {f"featurizer.blocks.{OPENVLA.dinov2.depth - 1}.", f"fused_featurizer.blocks.{OPENVLA.siglip.depth - 1}."}
    others = ("featurizer.norm.", "fused_featurizer.norm.", "fused_featurizer.attn_pool.")
    assert all(name.startswith((*last, *others)) for name in unused)
    assert len(folder) - len(unused) == len(made)


def test_what_older_folders_hold_besides_is_known(folder: dict[str, Tensor]) -> None:
    table = {"language_model.model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    assert rename({**folder, **table}, openvla_rule(OPENVLA), wanted()).keys() == wanted().keys()


@pytest.mark.parametrize(
    "name",
    [
        "vision_backbone.featurizer.blocks.0.attn.qk.weight",
        "vision_backbone.featurizer.blocks.3.attn.qkv.weight",
        "vision_backbone.featurizer.cls_tokens",
        "vision_backbone.fused_featurizer.blocks.4.norm1.weight",
        "vision_backbone.third_featurizer.cls_token",
        "projector.fc4.weight",
        "projector.fc1.scale",
        "language_model.model.layers.3.mlp.up_proj.weight",
        "language_model.model.layers.0.mlp.up_proj.bias",
        "language_model.model.norm.weight.extra",
        "action_head.weight",
    ],
)
def test_a_name_without_a_place_is_refused(folder: dict[str, Tensor], name: str) -> None:
    with pytest.raises(TensorNameError, match=f"tensor '{name}'"):
        rename({**folder, name: torch.zeros(1)}, openvla_rule(OPENVLA), wanted())


def test_a_tensor_that_another_encoder_has_is_refused(folder: dict[str, Tensor]) -> None:
    said = "'vision_backbone.fused_featurizer.cls_token' belongs to 'vision.fused_featurizer.cls_token', which this"
    with pytest.raises(TensorNameError, match=said):
        rename(
            {**folder, "vision_backbone.fused_featurizer.cls_token": torch.zeros(1)}, openvla_rule(OPENVLA), wanted()
        )


def test_two_tensors_for_one_place_are_refused(folder: dict[str, Tensor]) -> None:
    twice = "vision_backbone.featurizer.blocks.0.ls1.gamma"
    with pytest.raises(TensorNameError, match=r"blocks.0.ls1.scale_factor' and '.*ls1.gamma' are both 'vision.feat"):
        rename({**folder, twice: torch.ones(32)}, openvla_rule(OPENVLA), wanted())


def test_a_missing_tensor_is_named_by_its_place(folder: dict[str, Tensor]) -> None:
    rest = {name: tensor for name, tensor in folder.items() if name != "projector.fc2.bias"}
    with pytest.raises(TensorNameError, match=r"no tensor for 'projector.fc2.bias'"):
        rename(rest, openvla_rule(OPENVLA), wanted())


def test_a_wrong_shape_is_named(folder: dict[str, Tensor]) -> None:
    said = r"'projector.fc2.bias' makes 'projector.fc2.bias' of shape \[31\], expected \[32\]"
    with pytest.raises(TensorNameError, match=said):
        rename({**folder, "projector.fc2.bias": torch.zeros(31)}, openvla_rule(OPENVLA), wanted())


def test_a_tied_head_is_known_and_not_needed() -> None:
    tied = replace(LLAMA, tied=True)
    with torch.device("meta"):
        model = Llama(tied)
    given = {name: torch.zeros(tensor.shape) for name, tensor in model.state_dict().items()}
    head = {"lm_head.weight": torch.zeros(LLAMA.vocabulary, LLAMA.width)}
    assert rename({**given, **head}, llama_rule(tied), model.state_dict()).keys() == given.keys()
    with pytest.raises(TensorNameError, match=r"no tensor for 'lm_head.weight'"):
        rename(given, llama_rule(LLAMA), Llama(LLAMA).state_dict())
