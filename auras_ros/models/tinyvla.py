"""TinyVLA (Wen et al. 2024): a language model that encodes the observation, and a denoising head for the actions.

LLaVA-Pythia's parts (CLIP, projector, Pythia) turn images, prompt and robot state into one vector; the 1-D U-Net of
Diffusion Policy is conditioned on it. In the published code, pooling belongs to the head, which repeats it at each
denoising step. It does not depend on the step, so it is perception here (Auras 6.6), with the same result. The parts
are those of the published code's `droid_diffusion` head; the ACT and linear heads are not built.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.conditional_unet1d import DiffusionUnet1d, UnetSizes
from auras_ros.models.gpt_neox import GptNeox, GptNeoxConfig
from auras_ros.models.rt2 import llava_projector
from auras_ros.models.vision_language import SeeingLanguage
from auras_ros.models.vit import Vit, VitConfig


@dataclass(frozen=True)
class TinyVlaConfig:
    """The networks; the projector follows from them. state: numbers of the robot's state. horizon: actions of a
    chunk, a multiple of 2 for each scale after the first. down_dims, kernel, groups, step_width: the U-Net's."""

    vision: VitConfig
    language: GptNeoxConfig
    state: int = 7
    actions: int = 10
    horizon: int = 16
    down_dims: tuple[int, ...] = (256, 512, 1024)
    kernel: int = 5
    groups: int = 8
    step_width: int = 256


class LlavaPythia(SeeingLanguage):
    """CLIP, projector and Pythia. forward: the prefix [B, T, width] -> hidden states after the last norm."""

    language: GptNeox

    def forward(self, prefix: Tensor) -> Tensor:
        hidden: Tensor = self.language(prefix)
        return hidden


class PooledCondition(nn.Module):
    """Hidden states [B, T, width] and state [B, state] -> the condition of the head [B, width].

    The mean over all tokens, of images and prompt, normalised, and joined to the state by a linear layer.
    """

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.norm_after_pool = nn.LayerNorm(width)
        self.combine = nn.Linear(width + state, width)

    def forward(self, hidden: Tensor, state: Tensor) -> Tensor:
        pooled = self.norm_after_pool(hidden.mean(1))
        condition: Tensor = self.combine(torch.cat([pooled, state], -1))
        return condition


def build_llava_pythia(config: TinyVlaConfig) -> LlavaPythia:
    """CLIP, projector and Pythia, with random weights."""
    vision = Vit(config.vision)
    return LlavaPythia(vision, llava_projector(vision.features, config.language.width), GptNeox(config.language))


def build_head(config: TinyVlaConfig) -> tuple[PooledCondition, DiffusionUnet1d]:
    """Condition and noise network, with random weights. Raises ValueError, naming the size."""
    width = config.language.width
    sizes = UnetSizes(config.down_dims, config.kernel, config.groups, config.step_width)
    network = DiffusionUnet1d(config.actions, width, sizes)
    if config.horizon < 1 or config.horizon % network.horizon_multiple:
        raise ValueError(f"tinyvla: horizon: {config.horizon} is not a multiple of {network.horizon_multiple}")
    return PooledCondition(width, config.state), network
