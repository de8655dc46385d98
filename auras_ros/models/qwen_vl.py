"""Qwen2.5-VL (Bai et al. 2025): a vision transformer for images of any size, and a Qwen2.5 decoder with M-RoPE.

Qwen2.5 is a Llama with biases of queries, keys and values. M-RoPE (Wang et al. 2024, 2.1) gives each token three
positions: a word's are equal; an image's tokens share the time, and have their row and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.qwen_vision import QwenVision, QwenVisionConfig
from auras_ros.models.vlm import Grid, ImageEmbeddings, Vlm


@dataclass(frozen=True)
class QwenVlConfig:
    """Raises ValueError, naming the size."""

    vision: QwenVisionConfig
    language: LlamaConfig

    def __post_init__(self) -> None:
        if self.vision.out != self.language.width:
            raise ValueError(f"qwen: vision.out: {self.vision.out} is not the language width, {self.language.width}")
        if not self.language.mrope:
            raise ValueError("qwen: language.mrope: no sections")


class QwenVl(Vlm):
    """See the module."""

    def __init__(self, config: QwenVlConfig) -> None:
        super().__init__()
        self.config = config
        self.vision, self.language = QwenVision(config.vision), Llama(config.language)

    def see(self, pixels: Tensor, grids: Sequence[Grid]) -> list[ImageEmbeddings]:
        """pixels: patches, as `QwenVision` takes them; grids: rows and columns of patches."""
        return [ImageEmbeddings(tokens) for tokens in self.vision(pixels, grids)]

    def places(self, length: int, at: Tensor, grids: Sequence[Grid]) -> Tensor:
        """Text counts on by one a token. An image's tokens are at the next position plus their row and column; what
        follows it counts on from the larger of its two sides. Raises ValueError if `at` does not fit the grids."""
        merge = self.config.vision.merge
        sides = [(rows // merge, columns // merge) for rows, columns in grids]
        if len(at) != sum(rows * columns for rows, columns in sides):
            raise ValueError(f"qwen: {len(at)} image tokens, but the images have {sides} tokens")
        made, next_place, done = torch.empty(3, length, dtype=torch.int64), 0, 0
        for rows, columns in sides:
            first, count = int(at[0]), rows * columns
            made[:, done:first] = torch.arange(next_place, next_place + first - done)
            next_place += first - done
            token = torch.arange(count)
            made[:, first : first + count] = next_place + torch.stack([token * 0, token // columns, token % columns])
            next_place, done, at = next_place + max(rows, columns), first + count, at[count:]
        made[:, done:] = torch.arange(next_place, next_place + length - done)
        return made
