"""RT-2 (Zitkovich et al. 2023) in LLaVA 1.5's layout, as LLaRA publishes it: CLIP, a projector, Llama.

The image replaces the prompt's image token; the ids before and after it are separate arguments. `action_tokens` defines
what the tokens mean as actions.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from auras_ros.models.blocks import named
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.vision_language import VisionLanguage
from auras_ros.models.vit import Vit, VitConfig


@dataclass(frozen=True)
class Rt2Config:
    """The two networks; the projector's sizes follow from them."""

    vision: VitConfig
    language: LlamaConfig


def llava_projector(features: int, width: int) -> nn.Sequential:
    """[..., features] -> width -> width, GELU between (Liu et al. 2024)."""
    return named(linear_1=nn.Linear(features, width), gelu=nn.GELU(), linear_2=nn.Linear(width, width))


def build_rt2(config: Rt2Config) -> VisionLanguage:
    """The model with random weights."""
    vision = Vit(config.vision)
    return VisionLanguage(vision, llava_projector(vision.features, config.language.width), Llama(config.language))
