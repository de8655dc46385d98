"""What the bytes of a raw image mean, by ROS's names of encodings, and how they become RGB.

8-bit samples stay as they are; YUV 4:2:2 by BT.601 in video range, Bayer mosaics bilinearly, both as in OpenCV and
cv_bridge; mono16 as grey of the full 16 bits. Encodings that no policy can use are refused with the reason.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .fault import FaultName, ObservationError

Bytes = npt.NDArray[np.uint8]

PLAIN = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "mono8": 1}
YUV = {"yuv422": "UYVY", "uyvy": "UYVY", "yuv422_yuy2": "YUY2", "yuyv": "YUY2"}
# OpenCV names a mosaic by the second and third pixel of its second row, ROS by its first four.
BAYER = {"bayer_rggb8": "BG", "bayer_bggr8": "RG", "bayer_gbrg8": "GR", "bayer_grbg8": "GB"}
BYTES = {**PLAIN, **dict.fromkeys(YUV, 2), **dict.fromkeys(BAYER, 1), "mono16": 2}  # of a pixel
DEPTH = ("16UC1", "32FC1")
LEAST_MOSAIC = 3  # of either side: a pixel and its neighbours


def bytes_per_pixel(encoding: str) -> int:
    """Raises ObservationError if the encoding is not supported."""
    if encoding in BYTES:
        return BYTES[encoding]
    if encoding in DEPTH:
        detail = f"{encoding!r} is a depth image, and no policy takes distances for colours: send a colour image"
        raise ObservationError(FaultName.BAD_ENCODING, "encoding", detail)
    detail = f"{encoding[:40]!r} is not one of {', '.join(BYTES)}"
    raise ObservationError(FaultName.BAD_ENCODING, "encoding", detail)


def check_sides(encoding: str, height: int, width: int) -> None:
    """Raise ObservationError if an image of that size is impossible in this encoding."""
    if encoding in YUV and width % 2:
        raise ObservationError(FaultName.BAD_SIZE, "width", f"{width}: {encoding} has its pixels in pairs")
    if encoding in BAYER and min(height, width) < LEAST_MOSAIC:
        detail = f"{height} x {width}: a mosaic has at least {LEAST_MOSAIC} x {LEAST_MOSAIC} pixels"
        raise ObservationError(FaultName.BAD_SIZE, "height" if height < width else "width", detail)


def to_rgb(encoding: str, rows: Bytes, *, big_endian: bool) -> Bytes:
    """uint8 [height, width * bytes] -> RGB, uint8 [height, width, 3]; a view if that is enough."""
    height = len(rows)
    if encoding in PLAIN:
        pixels = rows.reshape(height, -1, PLAIN[encoding])
        if pixels.shape[2] == 1:
            return np.broadcast_to(pixels, (height, pixels.shape[1], 3))
        return pixels[:, :, 2::-1] if encoding.startswith("bgr") else pixels[:, :, :3]
    rows = np.ascontiguousarray(rows)
    if encoding == "mono16":
        values = rows.view(">u2" if big_endian else "<u2")
        grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # the nearest of 256 levels
        return np.broadcast_to(grey[:, :, None], (*grey.shape, 3))
    import cv2

    if encoding in YUV:
        code = getattr(cv2, f"COLOR_YUV2RGB_{YUV[encoding]}")
        return np.asarray(cv2.cvtColor(rows.reshape(height, -1, 2), code), dtype=np.uint8)
    return np.asarray(cv2.cvtColor(rows, getattr(cv2, f"COLOR_Bayer{BAYER[encoding]}2RGB")), dtype=np.uint8)
