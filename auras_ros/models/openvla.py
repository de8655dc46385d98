"""OpenVLA (Kim et al. 2024): DINOv2 and SigLIP joined by channel, a projector, Llama 2.

Both encoders see the same image, each normalised in its own way: images have six channels, DINOv2's three first. The
prompt's first token (the beginning of the sentence) comes before the image, the rest after it. `action_tokens` defines
what the tokens mean as actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Block, Blocks, carrying, named
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.vision_language import VisionLanguage
from auras_ros.models.vit import Vit, VitConfig

IDS_BEFORE_IMAGE = 1
PROMPT_END = 29871  # Llama's empty token: training prompts end in it, so every prompt must


@dataclass(frozen=True)
class OpenVlaConfig:
    """The three networks. The projector's first layer is four times as wide as both encoders together."""

    dinov2: VitConfig
    siglip: VitConfig
    language: LlamaConfig


class FusedVision(nn.Module):
    """Images [N, 6, px, px] -> patch tokens [N, patches, features] of the first and of the last three channels, joined.

    Raises ValueError if the two encoders do not cut an image into the same patches.
    """

    def __init__(self, featurizer: Vit, fused_featurizer: Vit) -> None:
        super().__init__()
        ours, other = featurizer.config, fused_featurizer.config
        for name in ("image_px", "patch_px"):
            if getattr(ours, name) != getattr(other, name):
                found = f"{getattr(ours, name)} and {getattr(other, name)}"
                raise ValueError(f"fused vision: {name}: {found}, but patches are joined one by one")
        self.featurizer, self.fused_featurizer = featurizer, fused_featurizer
        self.features, self.patches = featurizer.features + fused_featurizer.features, featurizer.patches

    def blocks(self) -> Blocks:
        """One encoder after the other; first the second one's pixels are passed on, then the first one's patches."""
        first = [(f"featurizer.{name}", carrying(block)) for name, block in self.featurizer.blocks()]
        second = [(f"fused_featurizer.{name}", _beside_first(block)) for name, block in self.fused_featurizer.blocks()]
        (opening, start), (closing, end) = first[0], second[-1]
        return [
            (opening, lambda images: start(*_halves(images))),
            *first[1:],
            *second[:-1],
            (closing, lambda patches, x: (torch.cat(end(patches, x), -1),)),
        ]

    def forward(self, images: Tensor) -> Tensor:
        one, other = _halves(images)
        return torch.cat([self.featurizer(one), self.fused_featurizer(other)], -1)


def build_openvla(config: OpenVlaConfig) -> VisionLanguage:
    """The model with random weights. The projector: features -> 4 * features -> width -> width, GELU between (as
    published for joined encoders)."""
    vision = FusedVision(Vit(config.dinov2), Vit(config.siglip))
    features, width = vision.features, config.language.width
    first, second = nn.Linear(features, 4 * features), nn.Linear(4 * features, width)
    projector = named(fc1=first, gelu1=nn.GELU(), fc2=second, gelu2=nn.GELU(), fc3=nn.Linear(width, width))
    return VisionLanguage(vision, projector, Llama(config.language))


def _halves(images: Tensor) -> tuple[Tensor, Tensor]:
    if images.dim() != 4 or images.shape[1] != 6:
        raise ValueError(f"fused vision: images: {list(images.shape)}, expected [N, 6, px, px]: one image, twice")
    return images[:, :3], images[:, 3:]


def _beside_first(block: Block) -> Block:
    return lambda done, x: (done, *block(x))
