"""Idefics3 (Laurencon et al. 2024) and SmolVLM2 (Marafioti et al. 2025): SigLIP, a folding projector, Llama.

Each `fold` x `fold` square of patches of a tile becomes one token. `checkpoints.vlm` says how an image is cut up.
"""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.smolvla import FoldProjector
from auras_ros.models.vit import Vit, VitConfig
from auras_ros.models.vlm import TiledVlm


@dataclass(frozen=True)
class Idefics3Config:
    """fold: side of the squares of patches that become one token. Raises ValueError, naming the size."""

    vision: VitConfig
    language: LlamaConfig
    fold: int

    def __post_init__(self) -> None:
        side = self.vision.image_px // self.vision.patch_px
        if self.fold < 1 or side % self.fold:
            raise ValueError(f"idefics3: fold: {self.fold} does not divide the {side} patches of a side")

    @property
    def tokens(self) -> int:
        """Embeddings of a tile."""
        return self.vision.patches // self.fold**2


def build_idefics3(config: Idefics3Config) -> TiledVlm:
    """The model with random weights."""
    projector = FoldProjector(config.vision, config.fold, config.language.width, scaled=False)
    return TiledVlm(Vit(config.vision), projector, Llama(config.language))
