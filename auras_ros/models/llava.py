"""LLaVA-1.5 (Liu et al. 2024): the patches of one CLIP image, a projector, Llama."""

from __future__ import annotations

from auras_ros.models.llama import Llama
from auras_ros.models.rt2 import Rt2Config, llava_projector
from auras_ros.models.vit import Vit
from auras_ros.models.vlm import TiledVlm


def build_llava(config: Rt2Config) -> TiledVlm:
    """The model with random weights; its networks are those of `rt2`."""
    vision = Vit(config.vision)
    return TiledVlm(vision, llava_projector(vision.features, config.language.width), Llama(config.language))
