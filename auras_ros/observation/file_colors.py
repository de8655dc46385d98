"""What a decoder makes of a file, any number of channels and 8 or 16 bits, as RGB of 8 bits.

Transparent pixels are laid on white, with Pillow's arithmetic: under them a file may hold any colours, which nobody
has ever seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .encodings import Bytes

WHITE = 255
_ROWS = 64  # that are laid on white at a time: bounds the memory that it takes


def high_bytes(samples: npt.NDArray[np.uint16]) -> Bytes:
    """16-bit samples as their upper 8 bits, as Pillow reads them."""
    return (samples >> 8).astype(np.uint8)


def rgb(pixels: npt.NDArray[Any], *, on_white: bool) -> Bytes:
    """OpenCV's channels, grey [h, w], BGR or BGRA [h, w, 3 or 4], uint8 -> RGB [h, w, 3].

    on_white: whether transparent pixels are laid on white; otherwise alpha is dropped.
    """
    if pixels.ndim == 2:
        return np.repeat(pixels[:, :, None], 3, axis=2)
    colors = np.ascontiguousarray(pixels[:, :, 2::-1])
    if pixels.shape[2] == 4 and on_white:
        _lay_on_white(colors, pixels[:, :, 3:])
    return colors


def _lay_on_white(colors: Bytes, alpha: Bytes) -> None:
    """In place. colors [h, w, 3], alpha [h, w, 1]."""
    for top in range(0, len(colors), _ROWS):
        opacity = alpha[top : top + _ROWS].astype(np.uint32)
        if opacity.min() == WHITE:
            continue
        block = colors[top : top + _ROWS]
        # Pillow's alpha_composite: seven more bits of precision, and a division by 255 in two shifts
        mixed = ((block * opacity + WHITE * (WHITE - opacity)) << 7) + (0x80 << 7)
        block[:] = (((mixed >> 8) + mixed) >> 8) >> 7
