"""A vision-language model as the engine serves it: a vision stage that makes embeddings of images, and a decoder.

The decoder gets one sequence: embedded token ids, of which those that stand for an image are replaced by that image's
embeddings (Nova II-A). What differs between models is how an image is cut up, how many embeddings it has, and which
positions the decoder rotates by. A model knows neither requests nor time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.llama import Llama
from auras_ros.models.vision_language import VisionEncoder

Grid = tuple[int, int]
"""Rows and columns of an image's pieces: tiles, or patches."""


@dataclass(frozen=True, eq=False)
class ImageEmbeddings:
    """What the vision stage makes of an image. tokens [n, language width]: they stand in the sequence. keys: for each
    decoder layer the keys and values [heads, patches, d] that it reads by cross-attention; none in most models
    (`cogagent`)."""

    tokens: Tensor
    keys: tuple[tuple[Tensor, Tensor], ...] = ()


class Vlm(nn.Module, ABC):
    """`see` is the vision stage; `language` the decoder of prefill and decode."""

    language: Llama

    @property
    def vision_layers(self) -> nn.ModuleList:
        """The encoder's repeated layers, in the order of their calls."""
        (found,) = (each for each in self.get_submodule("vision").children() if isinstance(each, nn.ModuleList))
        return found

    @abstractmethod
    def see(self, pixels: Tensor, grids: Sequence[Grid]) -> list[ImageEmbeddings]:
        """Of each image. pixels: the images' pieces, one after another, in the form that the model's processor gives
        them; grids: of each image."""

    def places(self, length: int, at: Tensor, grids: Sequence[Grid]) -> Tensor:
        """Positions for the rotary angles of a prompt of this length, int64 [length], or [3, length] with M-RoPE. at:
        positions of all image tokens in the sequence, int64, rising. A token generated later has the largest of them
        plus its distance from the prompt's last token."""
        return torch.arange(length)


class TiledVlm(Vlm):
    """Images cut into tiles of one size, each a batch row of the vision encoder: SmolVLM2, Idefics3, LLaVA."""

    def __init__(self, vision: VisionEncoder, projector: nn.Module, language: Llama) -> None:
        super().__init__()
        self.vision, self.projector, self.language = vision, projector, language

    def see(self, pixels: Tensor, grids: Sequence[Grid]) -> list[ImageEmbeddings]:
        """pixels: tiles [N, 3, px, px], as many of each image as its grid has pieces."""
        tokens: Tensor = self.projector(self.vision(pixels))
        parts = tokens.split([rows * columns for rows, columns in grids])
        return [ImageEmbeddings(part.flatten(0, 1)) for part in parts]
