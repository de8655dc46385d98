"""Pillow's antialiased bicubic resize, bit for bit, without Pillow: OpenVLA's processor resizes images with it.

Columns first, then rows. The weights of a pass are whole multiples of 2^-22 and its result is whole grey levels, as
Pillow's are (`Resample.c`). Float64 holds every sum exactly. If an image is more than a hundred times as high as wide,
Pillow takes the rows first, and the results differ by a few grey levels. OpenCV has no such method.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .images import ImageArray

SHARPNESS = -0.5  # the cubic kernel's free parameter
REACH = 2.0  # of the kernel to either side, in pixels of the coarser image
ONE = 1 << 22

FloatArray = npt.NDArray[np.float64]


def resize(pixels: ImageArray, height: int, width: int) -> ImageArray:
    """uint8 [h, w, channels] -> uint8 [height, width, channels]."""
    if width != pixels.shape[1]:
        pixels = _rows(pixels.transpose(1, 0, 2), width).transpose(1, 0, 2)
    if height != pixels.shape[0]:
        pixels = _rows(pixels, height)
    return pixels


def _rows(pixels: ImageArray, count: int) -> ImageArray:
    """Resize the first dimension."""
    flat = np.ascontiguousarray(pixels, dtype=np.float64).reshape(len(pixels), -1)
    made = np.empty((count, flat.shape[1]))
    for row, (first, weights) in enumerate(_weights(len(pixels), count)):
        np.dot(weights, flat[first : first + len(weights)], out=made[row])
    made += ONE // 2
    made /= ONE
    np.floor(made, out=made)
    return made.clip(0, 255).astype(np.uint8).reshape(count, *pixels.shape[1:])


@lru_cache(maxsize=64)
def _weights(size: int, count: int) -> tuple[tuple[int, FloatArray], ...]:
    """For each of `count` results: the index of its first input, of `size`, and its weights times ONE."""
    step = size / count
    stretch = max(step, 1.0)  # enlarging: the kernel keeps its width in input pixels
    made = []
    for row in range(count):
        centre = (row + 0.5) * step
        first = max(int(centre - REACH * stretch + 0.5), 0)
        last = min(int(centre + REACH * stretch + 0.5), size)
        weights = _kernel((np.arange(first, last, dtype=np.float64) - centre + 0.5) * (1.0 / stretch))
        weights /= sum(weights.tolist())  # in order: a pairwise sum would round differently
        made.append((first, np.trunc(weights * ONE + np.copysign(0.5, weights))))
    return tuple(made)


def _kernel(distance: FloatArray) -> FloatArray:
    x, a = np.abs(distance), SHARPNESS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < REACH, far, 0.0))
