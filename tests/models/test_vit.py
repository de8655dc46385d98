"""One network, three published ones: features against transformers' DINOv2 with registers, SigLIP and CLIP.

Guards: another layer than the published one; a token too many or too few; positions on the wrong tokens; an
activation that looks alike; a cut that is not the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.hf_names import timm_rule
from auras_ros.models.presets import CLIP_L_336, DINOV2_L, OPENVLAS, RT2S, SIGLIP_SO400M
from auras_ros.models.vit import Vit, VitConfig, activate
from tests.models import published
from tests.models.hf_names import clip_rule, rename

DINOV2, SIGLIP, CLIP = OPENVLAS["openvla-tiny"].dinov2, OPENVLAS["openvla-tiny"].siglip, RT2S["rt2-tiny"].vision
KINDS: dict[str, tuple[VitConfig, Callable[..., Any]]] = {
    "dinov2": (DINOV2, published.dinov2),
    "dinov2-one-register": (replace(DINOV2, registers=1, image_px=56), published.dinov2),
    "siglip": (SIGLIP, published.siglip),
    "siglip-tanh": (replace(SIGLIP, activation="gelu_tanh", feature_layer=-1), published.siglip),
    "clip": (CLIP, published.clip),
    "clip-first-layer": (replace(CLIP, feature_layer=-3, patch_px=7), published.clip),
}


def ours(kind: str, model: Any, config: VitConfig) -> Vit:
    vit = Vit(config).to(next(model.parameters()).dtype).eval().requires_grad_(False)
    if kind.startswith("clip"):
        vit.load_state_dict(rename(model.state_dict(), clip_rule(config), vit.state_dict()))
    else:
        convert = published.dinov2_as_timm if kind.startswith("dinov2") else published.siglip_as_timm
        vit.load_state_dict(rename(convert(model), timm_rule(config), vit.state_dict()))
    return vit


def pictures(config: VitConfig, dtype: torch.dtype = torch.float32) -> Tensor:
    side = config.image_px
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(side)).to(dtype)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-5), (torch.float64, "sdpa", 1e-12)]
)
def test_features_are_those_of_transformers(kind: str, dtype: torch.dtype, attention: str, tolerance: float) -> None:
    pytest.importorskip("transformers")
    config, make = KINDS[kind]
    model = make(config, attention).to(dtype)
    images = pictures(config, dtype)
    expected = published.features(model, images, config)
    got = ours(kind, model, config)(images)
    assert got.shape == (2, config.patches, config.width)
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@torch.no_grad()
@pytest.mark.parametrize("config", [DINOV2, SIGLIP, CLIP], ids=["dinov2", "siglip", "clip"])
def test_blocks_one_after_another_are_the_encoder_bit_for_bit(config: VitConfig) -> None:
    vit, carried = Vit(config), (pictures(config),)
    for _, block in vit.blocks():
        carried = block(*carried)
    assert torch.equal(carried[0], vit(pictures(config)))
    assert [name for name, _ in vit.blocks()] == ["embed", *(f"layers.{i}" for i in range(config.depth - 1))]


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("gelu", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        ("gelu_tanh", lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
        ("quick_gelu", lambda x: x / (1 + math.exp(-1.702 * x))),
    ],
)
def test_activations_are_their_formulas(name: Any, formula: Callable[[float], float]) -> None:
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    assert activate(name, x).tolist() == pytest.approx([formula(each) for each in x.tolist()], rel=1e-12)


def test_images_of_another_size_are_refused_not_interpolated() -> None:
    with pytest.raises(ValueError, match=r"vit: images: \[1, 3, 42, 42\], expected \[N, 3, 28, 28\]: positions"):
        Vit(DINOV2)(torch.zeros(1, 3, 42, 42))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"image_px": 13}, "image_px: 13 is less than patch_px, 14"),
        ({"heads": 5}, "width: 32 is not a multiple of heads, 5"),
        ({"feature_layer": 0}, "feature_layer: 0 is not in -3 to -1"),
        ({"feature_layer": -4}, "feature_layer: -4 is not in -3 to -1"),
        ({"activation": "relu"}, "activation: 'relu' is not known; known: gelu, gelu_tanh, quick_gelu"),
        ({"class_token": False, "class_position": True}, "class_position: there is no class token"),
        ({"depth": 0}, "depth: 0 is less than 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(sizes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"vit: {said}"):
        replace(DINOV2, **sizes)


@torch.no_grad()
@pytest.mark.parametrize(
    ("config", "name"),
    [(DINOV2, "vit_large_patch14_reg4_dinov2.lvd142m"), (SIGLIP, "vit_so400m_patch14_siglip_224")],
    ids=["dinov2", "siglip"],
)
def test_names_and_features_are_those_of_timm(config: VitConfig, name: str) -> None:
    """Where timm is installed: its own network at a tiny size, asked as OpenVLA's code asks it."""
    timm = pytest.importorskip("timm")
    sizes = {"embed_dim": config.width, "depth": config.depth, "num_heads": config.heads, "img_size": config.image_px}
    ratio = config.hidden / config.width
    model = timm.create_model(name, pretrained=False, num_classes=0, mlp_ratio=ratio, **sizes)
    published.randomise(model)
    recorded = published.dinov2_as_timm(published.dinov2(config)) if config.registers else None
    recorded = recorded or published.siglip_as_timm(published.siglip(config))
    shapes = {each.replace("scale_factor", "gamma"): tensor.shape for each, tensor in recorded.items()}
    assert shapes == {each: tensor.shape for each, tensor in model.state_dict().items()}
    vit = Vit(config).eval()
    vit.load_state_dict(rename(model.state_dict(), timm_rule(config), vit.state_dict()))
    (expected,) = model.get_intermediate_layers(pictures(config), n={config.depth - 2})
    torch.testing.assert_close(vit(pictures(config)), expected, rtol=1e-5, atol=1e-5)


def test_published_sizes() -> None:
    assert [each.patches for each in (DINOV2_L, SIGLIP_SO400M, CLIP_L_336)] == [256, 256, 576]
    assert [each.built for each in (DINOV2_L, SIGLIP_SO400M, CLIP_L_336)] == [23, 26, 23]
