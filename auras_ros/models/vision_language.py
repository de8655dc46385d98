"""A language model with vision: a vision encoder, a projector to its width, and the language model.

OpenVLA and RT-2 in LLaVA's layout are `VisionLanguage`, which decodes (`openvla`, `rt2`); TinyVLA only encodes
(`tinyvla`). The output of `see` and the embedded prompt are the public context's X_V and X_L (Auras 4.2.2), and the
tokens that follow are X_A. The policy decides when each is computed, and what of it is kept.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Blocks, alone
from auras_ros.models.llama import Llama


class VisionEncoder(Protocol):
    """A module: images -> patch tokens [N, patches, features]; its blocks in order give the same."""

    @property
    def features(self) -> int: ...

    @property
    def patches(self) -> int: ...

    def blocks(self) -> Blocks: ...

    def __call__(self, images: Tensor) -> Tensor: ...


class TokenEmbedding(Protocol):
    """What the prefix needs of a language model."""

    def embed(self, ids: Tensor) -> Tensor: ...


class SeeingLanguage(nn.Module):
    """What models with vision have in common: `vision`, `projector` ([..., vision.features] -> [..., language width])
    and `language`, whose class decides how the prefix is used."""

    language: TokenEmbedding

    def __init__(self, vision: VisionEncoder, projector: nn.Module, language: TokenEmbedding) -> None:
        super().__init__()
        self.vision, self.projector, self.language = vision, projector, language

    def see(self, images: Tensor) -> Tensor:
        """Images -> patches as input of the language model, X_V [B, patches, language width]."""
        projected: Tensor = self.projector(self.vision(images))
        return projected

    def blocks(self) -> Blocks:
        """`see` in consecutive parts, by name; each takes what the one before it returns."""
        seeing = [(f"vision.{name}", block) for name, block in self.vision.blocks()]
        return [*seeing, ("projector", alone(self.projector))]

    def prefix(self, seen: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """X_V [B, patches, width] between the embedded ids before and after it: [B, P0 + patches + P1, width].

        Ids are int64 [B or 1, P]; P may be 0.
        """
        rows = len(seen)
        first, last = (self.language.embed(ids).expand(rows, -1, -1) for ids in (before, after))
        return torch.cat([first, seen, last], 1)


class VisionLanguage(SeeingLanguage):
    """The model that decodes."""

    language: Llama
