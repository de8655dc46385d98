"""Raw image messages to uint8 RGB arrays; inconsistent ones are refused before memory is spent.

They become views if their layout allows it. This module never resizes, and knows no message type; files of JPEG, PNG
and other formats are `image_files`'s.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import encodings
from .fault import FaultName, ObservationError

ImageArray = npt.NDArray[np.uint8]
Buffer = bytes | bytearray | memoryview | ImageArray

MAX_PIXELS = 4096 * 4096

MAX_MESSAGE_BYTES = 4 * MAX_PIXELS + 65_536  # of any image, raw or compressed

Size = tuple[int, int]


def decode_raw(
    *,
    height: int,
    width: int,
    encoding: str,
    step: int,
    data: Buffer,
    is_bigendian: int = 0,
    max_pixels: int = MAX_PIXELS,
    expected: Size | None = None,
) -> ImageArray:
    """The fields of a raw image as RGB, uint8 [height, width, 3], a view of `data` if possible (never written to).

    `encodings` says which encodings are read, and how. Alpha is dropped, grey is repeated. `step` may exceed the row's
    bytes (padding). Byte order has no meaning for 8 bits. expected: the only (height, width) that is accepted; of nv12
    and nv21 these are the picture's, whose data have half as many rows more. Raises ObservationError naming the field.
    """
    pixel = encodings.bytes_per_pixel(encoding)
    check_size(height, width, max_pixels, expected)
    encodings.check_sides(encoding, height, width)
    if step < width * pixel:
        detail = f"{step} bytes for a row of {width} x {pixel}"
        raise ObservationError(FaultName.BAD_STEP, "step", detail)
    flat = as_bytes(data)
    count = encodings.row_count(encoding, height)
    if flat.size != step * count:
        raise ObservationError(FaultName.BAD_DATA, "data", f"{flat.size} bytes, expected {step} x {count}")
    rows = flat.reshape(count, step)[:, : width * pixel]
    return encodings.to_rgb(encoding, rows, big_endian=bool(is_bigendian))


def check_size(height: int, width: int, max_pixels: int, expected: Size | None) -> None:
    """Raises ObservationError."""
    if height < 1 or width < 1:
        field = "height" if height < 1 else "width"
        raise ObservationError(FaultName.BAD_SIZE, field, f"{height} x {width}")
    if height * width > max_pixels:
        detail = f"{height} x {width}, at most {max_pixels} pixels"
        raise ObservationError(FaultName.TOO_LARGE, "height x width", detail)
    if expected is not None and (height, width) != expected:
        detail = f"{height} x {width}, expected {expected[0]} x {expected[1]}"
        raise ObservationError(FaultName.BAD_SIZE, "height x width", detail)


def as_bytes(data: Buffer) -> ImageArray:
    """One row of bytes, a view of the data. Raises ObservationError."""
    if isinstance(data, np.ndarray):
        if data.dtype != np.uint8:
            raise ObservationError(FaultName.BAD_DATA, "data", f"dtype {data.dtype}, expected uint8")
        return np.ascontiguousarray(data).reshape(-1)
    return np.frombuffer(data, dtype=np.uint8)
