"""Qwen2.5-VL's vision transformer (Bai et al. 2025, 2.1.1): images of any size, attention within windows.

Patches keep their row and column as two-part rotary positions. Most layers attend within windows of `window_px`, a few
to the whole image; the merger joins squares of `merge` x `merge` patches to one token. Windows at the right and lower
edge may be smaller, so patches are put in an order in which windows of one size follow one another: each size is one
batched attention, and nothing is padded or masked. Parameter names are transformers'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.kernels.rope import pair_order, rotate_

Runs = tuple[tuple[int, int], ...]  # (how many, patches each) of sequences that attend within themselves
NORM_EPS, THETA = 1e-6, 10000.0


@dataclass(frozen=True)
class QwenVisionConfig:
    """frames: how many copies of a still image a patch has (a video's patch spans that many frames). whole: layers that
    attend to the whole image. out: width of the tokens. Raises ValueError, naming the size."""

    width: int
    depth: int
    heads: int
    hidden: int
    out: int
    whole: tuple[int, ...]
    patch_px: int = 14
    merge: int = 2
    window_px: int = 112
    frames: int = 2

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "hidden", "out", "patch_px", "merge", "window_px", "frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"qwen vision: {name}: {getattr(self, name)} is less than 1")
        if self.width % (4 * self.heads):
            raise ValueError(f"qwen vision: width: {self.width} is not a multiple of 4 * heads, {4 * self.heads}")
        if self.window_px % (self.patch_px * self.merge):
            raise ValueError(
                f"qwen vision: window_px: {self.window_px} is not a multiple of {self.patch_px * self.merge}, the side "
                f"of a token"
            )
        if unknown := [layer for layer in self.whole if not 0 <= layer < self.depth]:
            raise ValueError(f"qwen vision: whole: there is no layer {unknown[0]} of {self.depth}")


@dataclass(frozen=True)
class Layout:
    """The order of an image's tokens within the encoder, and the sequences that attend within themselves.

    order: int64 [tokens], the place of each in the image, row by row. turns: complex64 [patches, 1, head_dim / 2] in
    the encoder's order, as `rotate_` takes them.
    """

    order: Tensor
    turns: Tensor
    windows: Runs
    patches: int


class QwenPatchEmbed(nn.Module):
    """Patches [N, 3 * patch_px^2] -> [N, width]. A still image fills all frames of a patch, so `proj` is the sum of the
    published weights over the frames."""

    def __init__(self, config: QwenVisionConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(3 * config.patch_px**2, config.width, bias=False)

    def forward(self, patches: Tensor) -> Tensor:
        out: Tensor = self.proj(patches)
        return out


class QwenVisionAttention(nn.Module):
    """Each patch attends to those of its sequence. Its weights are `in_pair_order`."""

    def __init__(self, config: QwenVisionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv, self.proj = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, turns: Tensor, runs: Runs) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3 * self.heads, -1))
        rotate_(qkv[:, : 2 * self.heads], turns)
        query, key, value = qkv.transpose(0, 1).chunk(3)
        seen, start = [], 0
        for count, length in runs:
            end = start + count * length
            parts = (each[:, start:end].unflatten(1, (count, length)).transpose(0, 1) for each in (query, key, value))
            seen.append(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(0, 1))
            start = end
        out: Tensor = self.proj(torch.cat(seen).flatten(1))
        return out


class QwenMlp(nn.Module):
    """SwiGLU with biases."""

    def __init__(self, config: QwenVisionConfig) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(config.width, config.hidden) for _ in range(2))
        self.down_proj = nn.Linear(config.hidden, config.width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)).mul_(self.up_proj(x)))
        return out


class QwenVisionLayer(nn.Module):
    """Attention and SwiGLU, each with a norm before and a residual after."""

    def __init__(self, config: QwenVisionConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(config.width, NORM_EPS) for _ in range(2))
        self.attn, self.mlp = QwenVisionAttention(config), QwenMlp(config)

    def forward(self, x: Tensor, turns: Tensor, runs: Runs) -> Tensor:
        x = x + self.attn(self.norm1(x), turns, runs)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class QwenMerger(nn.Module):
    """[N, width] -> [N / merge^2, out]: each token's patches are joined."""

    def __init__(self, config: QwenVisionConfig) -> None:
        super().__init__()
        joined = config.width * config.merge**2
        self.ln_q = nn.RMSNorm(config.width, NORM_EPS)
        self.mlp = nn.Sequential(nn.Linear(joined, joined), nn.GELU(), nn.Linear(joined, config.out))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mlp(self.ln_q(x).view(-1, self.mlp[0].in_features))
        return out


class QwenVision(nn.Module):
    """Patches of images of any size -> tokens of the language model's width."""

    def __init__(self, config: QwenVisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = QwenPatchEmbed(config)
        self.blocks = nn.ModuleList(QwenVisionLayer(config) for _ in range(config.depth))
        self.merger = QwenMerger(config)

    def forward(self, patches: Tensor, grids: Sequence[tuple[int, int]]) -> list[Tensor]:
        """patches [N, 3 * patch_px^2]: of each image all patches, square of a token by square, row by row. grids: rows
        and columns of patches of each image, multiples of `merge`. Returns each image's tokens [n, out], row by row."""
        layouts = [layout(self.config, rows, columns) for rows, columns in grids]
        order = _joined([each.order for each in layouts]).to(patches.device)
        x = self.patch_embed(patches).unflatten(0, (-1, self.config.merge**2))[order].flatten(0, 1)
        turns = torch.cat([each.turns for each in layouts]).to(patches.device)
        windows = tuple(run for each in layouts for run in each.windows)
        images = tuple((1, each.patches) for each in layouts)
        for index, block in enumerate(self.blocks):
            x = block(x, turns, images if index in self.config.whole else windows)
        merged: Tensor = self.merger(x)
        return list(torch.empty_like(merged).index_copy(0, order, merged).split([len(each.order) for each in layouts]))


def in_pair_order(tensor: Tensor, heads: int) -> Tensor:
    """Published weight or bias of queries, keys and values: the first two in the order that `rotate_` wants."""
    parts = tensor.unflatten(0, (3, heads, -1))
    size = parts.shape[2]
    return torch.cat([parts[:2, :, pair_order(size, size)], parts[2:]]).flatten(0, 2)


@lru_cache(maxsize=64)
def layout(config: QwenVisionConfig, rows: int, columns: int) -> Layout:
    """The order of one image of rows x columns patches. Raises ValueError if they are not multiples of `merge`."""
    merge = config.merge
    if rows < 1 or columns < 1 or rows % merge or columns % merge:
        raise ValueError(f"qwen vision: an image of {rows} x {columns} patches: both must be multiples of {merge}")
    side = config.window_px // config.patch_px // merge  # tokens
    tokens = torch.arange(rows // merge * (columns // merge)).reshape(rows // merge, columns // merge)
    windows = [part.flatten() for strip in tokens.split(side) for part in strip.split(side, 1)]
    windows.sort(key=lambda window: -len(window))  # stable: within a size from left to right, from top to bottom
    order = torch.cat(windows)
    runs = tuple((len(list(group)), size * merge**2) for size, group in groupby(len(window) for window in windows))
    row, column = order // (columns // merge) * merge, order % (columns // merge) * merge  # of the first patch
    within = torch.arange(merge)
    places = torch.stack(
        [
            (row[:, None, None] + within[:, None]).expand(-1, merge, merge),
            (column[:, None, None] + within).expand(-1, merge, merge),
        ]
    )
    return Layout(order, _turns(config, places.flatten(1)), runs, rows * columns)


def _turns(config: QwenVisionConfig, places: Tensor) -> Tensor:
    """places: rows and columns [2, patches]. Half of a head's pairs turn by the row, half by the column."""
    half = config.width // config.heads // 2
    exponent = torch.arange(0, half, 2).float() / half
    angle = (places.float()[..., None] / THETA**exponent).transpose(0, 1).flatten(1)[:, None]
    return torch.complex(angle.cos(), angle.sin())


def _joined(orders: list[Tensor]) -> Tensor:
    """Orders within each image -> order within all of them."""
    before, made = 0, []
    for order in orders:
        made.append(order + before)
        before += len(order)
    return torch.cat(made)
