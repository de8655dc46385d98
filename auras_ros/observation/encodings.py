"""What the bytes of a raw image mean, by ROS's names of encodings, and how they become RGB.

8-bit samples stay as they are; 16-bit samples become the nearest of 256 levels; YUV is BT.601 in video range; Bayer
mosaics are bilinear. All of it is as in OpenCV and cv_bridge. Encodings that no policy can use are refused with the
reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .fault import FaultName, ObservationError

Bytes = npt.NDArray[np.uint8]

PLAIN = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "mono8": 1}
WIDE = {"rgb16": 3, "bgr16": 3, "rgba16": 4, "bgra16": 4, "mono16": 1}  # samples of a pixel, two bytes each
YUV422 = {"yuv422": "UYVY", "uyvy": "UYVY", "yuv422_yuy2": "YUY2", "yuyv": "YUY2"}
YUV420 = {"nv12": "NV12", "nv21": "NV21"}  # all rows of brightness, then half as many rows of colour pairs
# OpenCV names a mosaic by the second and third pixel of its second row, ROS by its first four.
MOSAICS = {"rggb": "BG", "bggr": "RG", "gbrg": "GR", "grbg": "GB"}
BAYER8 = {f"bayer_{order}8": code for order, code in MOSAICS.items()}
BAYER16 = {f"bayer_{order}16": code for order, code in MOSAICS.items()}
BYTES = {
    **PLAIN,
    **{name: 2 * samples for name, samples in WIDE.items()},
    **dict.fromkeys(YUV422, 2),
    **dict.fromkeys(YUV420, 1),
    **dict.fromkeys(BAYER8, 1),
    **dict.fromkeys(BAYER16, 2),
}  # of a pixel in a row
DEPTH = ("16UC1", "32FC1")
LEAST_MOSAIC = 3  # of either side: a pixel and its neighbours


def bytes_per_pixel(encoding: str) -> int:
    """Bytes of a pixel in a row. Raises ObservationError if the encoding is not supported."""
    if encoding in BYTES:
        return BYTES[encoding]
    if encoding in DEPTH:
        raise depth_refused(encoding)
    detail = f"{encoding[:40]!r} is not one of {', '.join(BYTES)}"
    raise ObservationError(FaultName.BAD_ENCODING, "encoding", detail)


def depth_refused(encoding: str, field: str = "encoding") -> ObservationError:
    """The refusal of a depth image."""
    detail = f"{encoding!r} is a depth image, and no policy takes distances for colours: send a colour image"
    return ObservationError(FaultName.BAD_ENCODING, field, detail)


def row_count(encoding: str, height: int) -> int:
    """Rows of bytes that an image of this height has."""
    return height + height // 2 if encoding in YUV420 else height


def check_sides(encoding: str, height: int, width: int) -> None:
    """Raise ObservationError if an image of that size is impossible in this encoding."""
    if encoding in (*YUV422, *YUV420) and width % 2:
        raise ObservationError(FaultName.BAD_SIZE, "width", f"{width}: {encoding} has its pixels in pairs")
    if encoding in YUV420 and height % 2:
        raise ObservationError(FaultName.BAD_SIZE, "height", f"{height}: {encoding} has its rows in pairs")
    if is_mosaic(encoding) and min(height, width) < LEAST_MOSAIC:
        detail = f"{height} x {width}: a mosaic has at least {LEAST_MOSAIC} x {LEAST_MOSAIC} pixels"
        raise ObservationError(FaultName.BAD_SIZE, "height" if height < width else "width", detail)


def is_mosaic(encoding: str) -> bool:
    return encoding in BAYER8 or encoding in BAYER16


def to_rgb(encoding: str, rows: Bytes, *, big_endian: bool) -> Bytes:
    """uint8 [row_count, width * bytes_per_pixel] -> RGB, uint8 [height, width, 3]; a view if that is enough."""
    if encoding in PLAIN:
        return _colors_first(encoding, rows.reshape(len(rows), -1, PLAIN[encoding]))
    rows = np.ascontiguousarray(rows)
    if encoding in YUV420:
        return _converted(rows, f"YUV2RGB_{YUV420[encoding]}")
    if encoding in YUV422:
        return _converted(rows.reshape(len(rows), -1, 2), f"YUV2RGB_{YUV422[encoding]}")
    if encoding in BAYER8:
        return mosaic_to_rgb(encoding, rows)
    samples = rows.view(">u2" if big_endian else "<u2").astype(np.uint16)
    if encoding in BAYER16:
        return mosaic_to_rgb(encoding, samples)
    return _colors_first(encoding, nearest_levels(samples).reshape(len(rows), -1, WIDE[encoding]))


def nearest_levels(samples: npt.NDArray[np.uint16]) -> Bytes:
    """16-bit samples as the nearest of 256 levels: 0 stays 0, 65535 becomes 255."""
    return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)


def mosaic_to_rgb(encoding: str, samples: npt.NDArray[Any]) -> Bytes:
    """A mosaic [height, width] in its own samples, 8 or 16 bits, to RGB, uint8 [height, width, 3]."""
    colored = _converted(samples, f"Bayer{(BAYER8 | BAYER16)[encoding]}2RGB")
    return nearest_levels(colored) if colored.dtype == np.uint16 else colored


def _colors_first(encoding: str, pixels: Bytes) -> Bytes:
    """[height, width, samples of a pixel] -> RGB; a view."""
    if pixels.shape[2] == 1:
        return np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return pixels[:, :, 2::-1] if encoding.startswith("bgr") else pixels[:, :, :3]


def _converted(pixels: npt.NDArray[Any], code: str) -> npt.NDArray[Any]:
    """By OpenCV's conversion of this name."""
    import cv2

    return np.asarray(cv2.cvtColor(pixels, getattr(cv2, f"COLOR_{code}")))
