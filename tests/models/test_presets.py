"""Presets are of the published size: numbers of parameters as the published folders have them.

Guards: a width or a layer that is not the published one, and a small model that is not small.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from auras_ros.models.llama import Llama
from auras_ros.models.openvla import build_openvla
from auras_ros.models.presets import LLAMAS, OPENVLAS, RT2S
from auras_ros.models.rt2 import build_rt2
from auras_ros.models.vit import VitConfig, VitLayer

LLAMA2_7B = 6_738_415_616
OPENVLA_FOLDER = 15_082_474_368 // 2  # its tensors in bytes, two each
LLAVA_FOLDER = 14_126_854_144 // 2


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def left_out(vit: VitConfig) -> int:
    """The layers behind the feature layer and the norm after them."""
    return (vit.depth - vit.built) * parameters(VitLayer(vit)) + 2 * vit.width


def pooling_head(vit: VitConfig) -> int:
    """SigLIP's: one query, attention, a norm, two linear layers."""
    width, hidden = vit.width, vit.hidden
    linear = width * width + width + 2 * (width * width + width) + width * width + width
    return width + linear + 2 * width + 2 * width * hidden + width + hidden


def test_published_models_have_as_many_parameters_as_published() -> None:
    vla, rt2 = OPENVLAS["openvla-7b"], RT2S["llava-1.5-7b"]
    with torch.device("meta"):
        assert parameters(Llama(LLAMAS["llama2-7b"])) == LLAMA2_7B
        whole = parameters(build_openvla(vla)) + left_out(vla.dinov2) + left_out(vla.siglip) + pooling_head(vla.siglip)
        assert whole == OPENVLA_FOLDER
        assert parameters(build_rt2(rt2)) + left_out(rt2.vision) == LLAVA_FOLDER


def test_openvla_joins_2176_channels() -> None:
    with torch.device("meta"):
        model = build_openvla(OPENVLAS["openvla-7b"])
    sizes = [tuple(p.shape) for name, p in model.projector.named_parameters() if name.endswith("weight")]
    assert sizes == [(8704, 2176), (4096, 8704), (4096, 4096)]


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_small_ones_are_small(size: str) -> None:
    limit = {"small": 200_000_000, "tiny": 1_000_000}[size]
    with torch.device("meta"):
        models = [
            Llama(LLAMAS[f"llama-{size}"]),
            build_openvla(OPENVLAS[f"openvla-{size}"]),
            build_rt2(RT2S[f"rt2-{size}"]),
        ]
    assert all(parameters(model) < limit for model in models)
