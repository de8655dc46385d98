"""Image messages to uint8 RGB arrays; inconsistent ones are refused before memory is spent.

Raw images become views if their layout allows it. The size of a compressed image is read from its header and checked
before the decoder runs, and the file must be complete: decoders fill what is missing with grey and only print a
warning. The cost of a file is bounded before it is decoded, and the decoder lets other threads run. This module never
resizes, and knows no message type.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from . import encodings
from .fault import FaultName, ObservationError

ImageArray = npt.NDArray[np.uint8]
Buffer = bytes | bytearray | memoryview | ImageArray

MAX_PIXELS = 4096 * 4096

MAX_MESSAGE_BYTES = 4 * MAX_PIXELS + 65_536  # of any image, raw or compressed
MORE_BYTES = 65_536  # of a file, beyond four for each pixel: headers, colour profiles
MAX_PARTS = 10_000  # segments of a JPEG file, chunks of a PNG file: cameras write a few dozen at most
MAX_SCANS = 100  # of a progressive JPEG; ten are usual. Each one is a pass over the whole image

Size = tuple[int, int]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
# Start-of-frame markers; C4, C8 and CC in that range mean other things.
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset(range(0xD0, 0xD8)) | {0x01}
_SCAN = b"\xff\xda"


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
    bytes (padding). Byte order has no meaning for 8 bits. expected: the only (height, width) that is accepted. Raises
    ObservationError naming the field.
    """
    pixel = encodings.bytes_per_pixel(encoding)
    _check_size(height, width, max_pixels, expected)
    encodings.check_sides(encoding, height, width)
    if step < width * pixel:
        detail = f"{step} bytes for a row of {width} x {pixel}"
        raise ObservationError(FaultName.BAD_STEP, "step", detail)
    flat = _as_bytes(data)
    if flat.size != step * height:
        raise ObservationError(FaultName.BAD_DATA, "data", f"{flat.size} bytes, expected {step} x {height}")
    rows = flat.reshape(height, step)[:, : width * pixel]
    return encodings.to_rgb(encoding, rows, big_endian=bool(is_bigendian))


def decode_compressed(data: Buffer, max_pixels: int = MAX_PIXELS, expected: Size | None = None) -> ImageArray:
    """A complete JPEG or PNG file as RGB, uint8 [height, width, 3]; EXIF rotation is not applied.

    expected: the only (height, width) that is accepted. Raises ObservationError: `bad_data` for an empty, truncated or
    corrupt file or another format, `bad_encoding` for sample depths other than 8 bits, `bad_size` for another size than
    expected, `too_large` for what would take too long. All but corrupt pixels are found before decoding.
    """
    flat = _as_bytes(data)
    _check_bytes(flat.size, max_pixels)
    height, width = compressed_size(flat.data)
    _check_size(height, width, max_pixels, expected)
    _check_bytes(flat.size, height * width)
    _check_whole(flat.data)
    import cv2

    try:
        bgr = cv2.imdecode(flat, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise ObservationError(FaultName.BAD_DATA, "data", f"decoder: {error.err}") from error
    if bgr is None:
        raise ObservationError(FaultName.BAD_DATA, "data", "the decoder refused it")
    if bgr.shape != (height, width, 3):
        raise ObservationError(FaultName.BAD_DATA, "data", f"decoded {bgr.shape}, header {height} x {width}")
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def compressed_size(data: bytes | memoryview) -> tuple[int, int]:
    """(height, width) from the header; nothing is decoded. Raises ObservationError."""
    if data[:8] == _PNG:
        return _png_size(data)
    if data[:2] == _JPEG:
        return _jpeg_size(data)
    if not len(data):
        raise ObservationError(FaultName.BAD_DATA, "data", "empty")
    raise ObservationError(FaultName.BAD_ENCODING, "data", "neither JPEG nor PNG")


def _png_size(data: bytes | memoryview) -> tuple[int, int]:
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise _truncated("PNG header")
    width, height, depth = struct.unpack_from(">IIB", data, 16)
    if depth > 8:
        raise ObservationError(FaultName.BAD_ENCODING, "data", f"PNG with {depth} bits a sample")
    return height, width


def _jpeg_size(data: bytes | memoryview) -> tuple[int, int]:
    at = 2
    for _ in range(MAX_PARTS):
        if at + 4 > len(data):
            raise _truncated("JPEG header")
        if data[at] != 0xFF:
            raise ObservationError(FaultName.BAD_DATA, "data", f"JPEG: no marker at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _BARE:
            at += 2
        elif marker in (0xD9, 0xDA):
            raise ObservationError(FaultName.BAD_DATA, "data", "JPEG: no frame header before the scan")
        elif marker in _SOF:
            return _sof_size(data, at)
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    raise _too_many("segments", MAX_PARTS)


def _sof_size(data: bytes | memoryview, at: int) -> tuple[int, int]:
    if at + 10 > len(data):
        raise _truncated("JPEG header")
    depth, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
    if depth != 8 or components not in (1, 3):
        detail = f"JPEG with {depth} bits a sample and {components} components"
        raise ObservationError(FaultName.BAD_ENCODING, "data", detail)
    return height, width


def _check_whole(data: memoryview) -> None:
    if data[:2] == _JPEG:
        if not bytes(data[-64:]).rstrip(b"\x00").endswith(b"\xff\xd9"):
            raise _truncated("JPEG: no end marker")
        if bytes(data).count(_SCAN) > MAX_SCANS:
            raise _too_many("scans", MAX_SCANS)
        return
    at = 8
    for _ in range(MAX_PARTS):
        if at + 12 > len(data):
            raise _truncated("PNG: no end chunk")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            raise _truncated("PNG: no end chunk")
        if zlib.crc32(data[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
            detail = f"PNG: checksum of chunk {kind!r} at byte {at}"
            raise ObservationError(FaultName.BAD_DATA, "data", detail)
        if kind == b"IEND":
            return
        at = end
    raise _too_many("chunks", MAX_PARTS)


def _too_many(what: str, most: int) -> ObservationError:
    return ObservationError(FaultName.TOO_LARGE, "data", f"more than {most} {what}")


def _truncated(what: str) -> ObservationError:
    return ObservationError(FaultName.BAD_DATA, "data", f"truncated: {what}")


def _check_size(height: int, width: int, max_pixels: int, expected: Size | None) -> None:
    if height < 1 or width < 1:
        field = "height" if height < 1 else "width"
        raise ObservationError(FaultName.BAD_SIZE, field, f"{height} x {width}")
    if height * width > max_pixels:
        detail = f"{height} x {width}, at most {max_pixels} pixels"
        raise ObservationError(FaultName.TOO_LARGE, "height x width", detail)
    if expected is not None and (height, width) != expected:
        detail = f"{height} x {width}, expected {expected[0]} x {expected[1]}"
        raise ObservationError(FaultName.BAD_SIZE, "height x width", detail)


def _check_bytes(size: int, pixels: int) -> None:
    if size > 4 * pixels + MORE_BYTES:
        detail = f"{size} bytes for at most {pixels} pixels"
        raise ObservationError(FaultName.TOO_LARGE, "data", detail)


def _as_bytes(data: Buffer) -> ImageArray:
    if isinstance(data, np.ndarray):
        if data.dtype != np.uint8:
            raise ObservationError(FaultName.BAD_DATA, "data", f"dtype {data.dtype}, expected uint8")
        return np.ascontiguousarray(data).reshape(-1)
    return np.frombuffer(data, dtype=np.uint8)
