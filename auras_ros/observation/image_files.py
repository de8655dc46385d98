"""JPEG, PNG and WebP files to uint8 RGB arrays: the one decoder, for topics and for the server's requests.

The size is read from the file's header and checked before the decoder runs, and the file must be complete: decoders
fill what is missing with grey and only print a warning. The cost of a file is bounded before it is decoded: its bytes,
pixels, parts, and the passes over all pixels that the scans of a progressive JPEG are. The decoder lets other threads
run; it cannot be interrupted, and takes about a second for the largest image and the costliest file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection

import numpy as np

from .fault import FaultName, ObservationError
from .images import MAX_PIXELS, Buffer, ImageArray, Size, as_bytes, check_size

JPEG = "JPEG"
PNG = "PNG"
WEBP = "WebP"
CAMERA_FORMATS = (JPEG, PNG)  # of `sensor_msgs/CompressedImage`
REQUEST_FORMATS = (JPEG, PNG, WEBP)  # of requests over HTTP

MORE_BYTES = 65_536  # of a file, beyond four for each pixel: headers, colour profiles
MAX_PARTS = 10_000  # segments of a JPEG file, chunks of the others: cameras write a few dozen at most
MAX_SCANS = 100  # of a progressive JPEG; ten are usual. Each one is a pass over the whole image
MAX_SCANNED_PIXELS = 1 << 29  # scans times pixels: 16 scans of 32 million pixels, which take half a second

_PNG_BEGIN = b"\x89PNG\r\n\x1a\n"
_JPEG_BEGIN = b"\xff\xd8"
# Start-of-frame markers; C4, C8 and CC in that range mean other things.
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset(range(0xD0, 0xD8)) | {0x01}
_SCAN = b"\xff\xda"
_END = b"\xff\xd9"
_RIFF_HEADER = 12  # bytes: RIFF, the size, WEBP


def decode_compressed(
    data: Buffer,
    max_pixels: int = MAX_PIXELS,
    expected: Size | None = None,
    *,
    formats: Collection[str] = CAMERA_FORMATS,
    is_turned: bool = False,
) -> ImageArray:
    """A complete file as RGB, uint8 [height, width, 3]; the first picture of several.

    expected: the only (height, width) that is accepted. formats: those that are accepted. is_turned: whether the image
    is turned as its EXIF says. Raises ObservationError: `bad_data` for an empty, truncated or corrupt file,
    `bad_encoding` for another format, for sample depths other than 8 bits and for four colours, `bad_size` for another
    size than expected, `too_large` for what would take too long. All but corrupt pixels are found before decoding.
    """
    flat = as_bytes(data)
    _check_bytes(flat.size, max_pixels)
    height, width = compressed_size(flat.data, formats)
    check_size(height, width, max_pixels, expected)
    _check_bytes(flat.size, height * width)
    _check_whole(flat.data, height * width)
    import cv2

    flags = cv2.IMREAD_COLOR if is_turned else cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        bgr = cv2.imdecode(flat, flags)
    except cv2.error as error:
        raise ObservationError(FaultName.BAD_DATA, "data", f"decoder: {error.err}") from error
    if bgr is None:
        raise ObservationError(FaultName.BAD_DATA, "data", "the decoder refused it")
    sizes = [(height, width), (width, height)] if is_turned else [(height, width)]
    if bgr.shape[:2] not in sizes or bgr.shape[2:] != (3,):
        raise ObservationError(FaultName.BAD_DATA, "data", f"decoded {bgr.shape}, header {height} x {width}")
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def compressed_size(data: bytes | memoryview, formats: Collection[str] = CAMERA_FORMATS) -> tuple[int, int]:
    """(height, width) from the header; nothing is decoded. Raises ObservationError."""
    if not len(data):
        raise ObservationError(FaultName.BAD_DATA, "data", "empty")
    if PNG in formats and data[:8] == _PNG_BEGIN:
        return _png_size(data)
    if JPEG in formats and data[:2] == _JPEG_BEGIN:
        return _jpeg_size(data)
    if WEBP in formats and _is_webp(data):
        return _webp_size(data)
    raise ObservationError(FaultName.BAD_ENCODING, "data", f"expected a file of {', '.join(formats)}")


def _png_size(data: bytes | memoryview) -> tuple[int, int]:
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise _truncated("PNG header")
    width, height, depth = struct.unpack_from(">IIB", data, 16)
    if depth > 8:
        raise ObservationError(FaultName.BAD_ENCODING, "data", f"PNG with {depth} bits a sample, expected 8 at most")
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
        detail = f"JPEG with {depth} bits a sample and {components} components, expected 8 and 1 or 3"
        raise ObservationError(FaultName.BAD_ENCODING, "data", detail)
    return height, width


def _is_webp(data: bytes | memoryview) -> bool:
    return data[:4] == b"RIFF" and data[8:_RIFF_HEADER] == b"WEBP"


def _webp_size(data: bytes | memoryview) -> tuple[int, int]:
    """From the first chunk: a canvas (VP8X), or an image with loss (VP8) or without (VP8L)."""
    if len(data) < _RIFF_HEADER + 18:
        raise _truncated("WebP header")
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        return height, width
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF  # the upper two bits are a scale for displays
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    raise ObservationError(FaultName.BAD_DATA, "data", "WebP: no image header in the first chunk")


def _check_whole(data: memoryview, pixels: int) -> None:
    """Raises ObservationError for a file that has not come to its end, or costs too much."""
    if data[:2] == _JPEG_BEGIN:
        _check_jpeg(bytes(data), pixels)
    elif data[:8] == _PNG_BEGIN:
        _check_png(data)
    else:
        _check_webp(data)


def _check_jpeg(data: bytes, pixels: int) -> None:
    """FF D9 cannot stand within a scan, and a thumbnail's stands before the last scan; what follows is ignored."""
    if data.rfind(_END) < data.rfind(_SCAN):
        raise _truncated("JPEG: no end marker")
    scans = data.count(_SCAN)
    if scans > MAX_SCANS:
        raise _too_many("scans", MAX_SCANS)
    if scans > 1 and scans * pixels > MAX_SCANNED_PIXELS:
        raise _too_many("scans", MAX_SCANNED_PIXELS // pixels)


def _check_png(data: memoryview) -> None:
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


def _check_webp(data: memoryview) -> None:
    size = int(struct.unpack_from("<I", data, 4)[0]) + 8
    if size > len(data):
        raise _truncated(f"WebP: {len(data)} of {size} bytes")
    at = _RIFF_HEADER
    for _ in range(MAX_PARTS):
        if at + 8 > size:
            return
        length = int(struct.unpack_from("<I", data, at + 4)[0])
        at += 8 + length + length % 2
        if at > size + 1:  # the last padding byte may be missing
            raise _truncated("WebP: a chunk beyond the end")
    raise _too_many("chunks", MAX_PARTS)


def _too_many(what: str, most: int) -> ObservationError:
    return ObservationError(FaultName.TOO_LARGE, "data", f"more than {most} {what}")


def _truncated(what: str) -> ObservationError:
    return ObservationError(FaultName.BAD_DATA, "data", f"truncated: {what}")


def _check_bytes(size: int, pixels: int) -> None:
    if size > 4 * pixels + MORE_BYTES:
        detail = f"{size} bytes for at most {pixels} pixels"
        raise ObservationError(FaultName.TOO_LARGE, "data", detail)
