"""Images as each model's published processor prepares them: resized with Pillow, cut up, normalised.

A processor is told nothing by the image but its size: the same bytes give the same pieces, and `digest` names them, so
that an engine may keep an image's embeddings.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.models.vlm import Grid

ImagePixels = npt.NDArray[np.uint8]
MOST_SIDE = 4096  # of an image after resizing, in pixels; Idefics3's own limit
MOST_PIXELS = MOST_SIDE**2
MOST_ASPECT = 200  # Qwen2-VL's own limit
LANCZOS, BILINEAR, BICUBIC = 1, 2, 3  # Pillow's numbers
RESAMPLE = {LANCZOS: "LANCZOS", BILINEAR: "BILINEAR", BICUBIC: "BICUBIC"}
LEAST_STD = 1e-6
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)


class PictureError(ValueError):
    """An image that cannot be used; the text says why."""


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """pixels: the pieces that `Vlm.see` takes, float32. grid: rows and columns of them; a model whose pieces are tiles
    has them in one column. text: what stands for the image in the prompt, with one image token for each of `tokens`
    embeddings. digest: SHA-256 of the image as it came, hex."""

    pixels: Tensor
    grid: Grid
    tokens: int
    text: str
    digest: str


class ImageProcessor(Protocol):
    """How one model's images are prepared."""

    def __call__(self, image: ImagePixels) -> PreparedImage:
        """An image, uint8 RGB [height, width, 3]. Raises PictureError."""
        ...


@dataclass(frozen=True)
class Normalization:
    """(pixel * scale - mean) / std, for each colour."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resample: int

    @classmethod
    def read(cls, read: ConfigReader, resample: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Normalization:
        """From a preprocessor_config.json. Raises ModelConfigError."""
        for step in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"):
            read.only(step, True)
        return cls(
            read.number("rescale_factor", 1 / 255),
            read.numbers("image_mean", 3, mean),
            tuple(_divisor(read, each) for each in read.numbers("image_std", 3, std)),
            read.only("resample", resample, *(set(RESAMPLE) - {resample})),
        )

    def resized(self, image: ImagePixels, height: int, width: int) -> ImagePixels:
        """Raises PictureError if Pillow is not installed."""
        if image.shape[:2] == (height, width):
            return image
        try:
            from PIL import Image
        except ImportError as error:
            raise PictureError("images need the Pillow library: pip install 'auras_ros[vlm]'") from error
        method = getattr(Image.Resampling, RESAMPLE[self.resample])
        return np.asarray(Image.fromarray(image).resize((width, height), method))

    def __call__(self, image: ImagePixels) -> npt.NDArray[np.float32]:
        """uint8 [h, w, 3] -> float32 [3, h, w]."""
        return np.stack([table.take(image[..., colour]) for colour, table in enumerate(self._tables)])

    @cached_property
    def _tables(self) -> npt.NDArray[np.float32]:
        """What each value of each colour becomes: [3, 256]."""
        scaled = (np.arange(256, dtype=np.float64) * self.scale).astype(np.float32)
        mean, std = (np.array(each, np.float32)[:, None] for each in (self.mean, self.std))
        made: npt.NDArray[np.float32] = (scaled - mean) / std
        return made


def check(image: ImagePixels) -> None:
    """Raises PictureError unless it is uint8 RGB [height, width, 3] of a usable form."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        got = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise PictureError(f"image: {got}, expected uint8 [height, width, 3]")
    height, width = image.shape[:2]
    if min(height, width) < 1:
        raise PictureError(f"image: {width} x {height} pixels")
    if max(height, width) > MOST_ASPECT * min(height, width):
        raise PictureError(f"image: {width} x {height} pixels: one side is more than {MOST_ASPECT} times the other")


def prepared(image: ImagePixels, pixels: npt.NDArray[np.float32], grid: Grid, tokens: int, text: str) -> PreparedImage:
    """image: as it came."""
    digest = hashlib.sha256(repr(image.shape).encode())
    digest.update(np.ascontiguousarray(image).data)
    return PreparedImage(torch.from_numpy(pixels), grid, tokens, text, digest.hexdigest())


@dataclass(frozen=True)
class Idefics3Processor:
    """Idefics3 and SmolVLM2: the image's longer side becomes `longest`; then, if `splitting`, both sides become
    multiples of `tile_px`, and the image is its tiles and, if they are several, a small one of the whole. tokens:
    embeddings of a tile."""

    normalize: Normalization
    longest: int
    tile_px: int
    splitting: bool
    tokens: int

    def __call__(self, image: ImagePixels) -> PreparedImage:
        check(image)
        px, rows, columns = self.tile_px, 1, 1
        sized = self.normalize.resized(image, *_longest_side(image, self.longest))
        if self.splitting:
            sized = self.normalize.resized(sized, *_multiples(sized, px))
            rows, columns = sized.shape[0] // px, sized.shape[1] // px
        tiles = [self.normalize.resized(sized, px, px)]
        if rows * columns > 1:
            corners = [(y * px, x * px) for y in range(rows) for x in range(columns)]
            tiles = [*(sized[y : y + px, x : x + px] for y, x in corners), *tiles]
        pixels = np.stack([self.normalize(tile) for tile in tiles])
        return prepared(image, pixels, (len(tiles), 1), len(tiles) * self.tokens, self._text(rows, columns))

    def _text(self, rows: int, columns: int) -> str:
        around, tile = "<fake_token_around_image>", "<image>" * self.tokens
        whole = f"{around}<global-img>{tile}{around}"
        if rows * columns == 1:
            return whole
        lines = [[f"{around}<row_{y}_col_{x}>{tile}" for x in range(1, columns + 1)] for y in range(1, rows + 1)]
        return "".join("".join(line) + "\n" for line in lines) + "\n" + whole


@dataclass(frozen=True)
class LlavaProcessor:
    """LLaVA-1.5: the shorter side becomes `shortest`, then the centre is cut out, a square of `side` pixels."""

    normalize: Normalization
    shortest: int
    side: int
    tokens: int

    def __call__(self, image: ImagePixels) -> PreparedImage:
        check(image)
        height, width = image.shape[:2]
        long = int(self.shortest * max(height, width) / min(height, width))
        size = (long, self.shortest) if height > width else (self.shortest, long)
        sized = self.normalize.resized(image, *size)
        top, left = ((each - self.side) // 2 for each in size)
        pixels = self.normalize(sized[top : top + self.side, left : left + self.side])[None]
        return prepared(image, pixels, (1, 1), self.tokens, "<image>" * self.tokens)


@dataclass(frozen=True)
class QwenProcessor:
    """Qwen2.5-VL: both sides become multiples of a token's, with between `least` and `most` pixels in all, and nearly
    the same aspect; then the image is its patches, square of a token by square."""

    normalize: Normalization
    patch_px: int
    merge: int
    least: int
    most: int

    def __call__(self, image: ImagePixels) -> PreparedImage:
        check(image)
        size = self._size(*image.shape[:2])
        pixels = self.normalize(self.normalize.resized(image, *size))
        rows, columns = (side // self.patch_px for side in size)
        merge, px = self.merge, self.patch_px
        squares = pixels.reshape(3, rows // merge, merge, px, columns // merge, merge, px)
        patches = squares.transpose(1, 4, 2, 5, 0, 3, 6).reshape(rows * columns, 3 * px * px)
        tokens = rows * columns // merge**2
        return prepared(image, np.ascontiguousarray(patches), (rows, columns), tokens, "<|image_pad|>" * tokens)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        factor = self.patch_px * self.merge
        rounded = [round(side / factor) * factor for side in (height, width)]
        if math.prod(rounded) > self.most:
            shrink = math.sqrt(height * width / self.most)
            rounded = [max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width)]
        elif math.prod(rounded) < self.least:
            grow = math.sqrt(self.least / (height * width))
            rounded = [math.ceil(side * grow / factor) * factor for side in (height, width)]
        return rounded[0], rounded[1]


@dataclass(frozen=True)
class SquareProcessor:
    """The whole image as one square of `side` pixels, whatever its aspect (our CogAgent form)."""

    normalize: Normalization
    side: int
    tokens: int

    def __call__(self, image: ImagePixels) -> PreparedImage:
        check(image)
        pixels = self.normalize(self.normalize.resized(image, self.side, self.side))[None]
        return prepared(image, pixels, (1, 1), self.tokens, "<image>" * self.tokens)


def _divisor(read: ConfigReader, value: float) -> float:
    if value < LEAST_STD:
        raise read.error("image_std", f"{value:g} is less than {LEAST_STD:g}")
    return value


def _longest_side(image: ImagePixels, longest: int) -> tuple[int, int]:
    """Height and width: the longer becomes `longest`; the other keeps the aspect, truncated, and is even."""
    height, width = image.shape[:2]
    aspect = width / height
    if width >= height:
        other = int(longest / aspect)
        return max(other + other % 2, 1), longest
    other = int(longest * aspect)
    return longest, max(other + other % 2, 1)


def _multiples(image: ImagePixels, tile: int) -> tuple[int, int]:
    """Height and width: the longer rounded up to tiles, then the other of the same aspect rounded up."""
    height, width = image.shape[:2]
    aspect = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        return math.ceil(int(width / aspect) / tile) * tile, width
    height = math.ceil(height / tile) * tile
    return height, math.ceil(int(height * aspect) / tile) * tile


def size_of(
    read: ConfigReader, key: str, *names: str, default: dict[str, int], most: int = MOST_SIDE
) -> tuple[int, ...]:
    """The named numbers of a size, from 1 to `most`. Raises ModelConfigError."""
    given: Any = read.get(key, default)
    if isinstance(given, int) and not isinstance(given, bool):  # an older form
        given = dict.fromkeys(names, given)
    size = ConfigReader(given, f"{read.where}.{key}")
    made = tuple(size.integer(name, default.get(name), 1, most) for name in names)
    size.finish(set())
    return made
