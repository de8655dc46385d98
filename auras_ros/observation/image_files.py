"""Files of pictures to uint8 RGB arrays: the one decoder, for topics and for the server's requests.

A file's header is read and checked before the decoder runs, and the file must be complete (`file_headers`). The decoder
is OpenCV's: it lets other threads run, cannot be interrupted, and takes about a second for the largest image and the
costliest file. What it makes of a file's samples, transparency and orientation depends on who sent it (`FileRules`):
cameras' files are read as image_transport and cv_bridge read them, those of requests as Pillow and transformers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import encodings
from .fault import FaultName, ObservationError
from .file_colors import WHITE, high_bytes, rgb
from .file_headers import JPEG, PNG, WEBP, FileHeader, check_bytes, check_whole, read_header, transparent_level
from .file_orientation import orientation, upright
from .images import MAX_PIXELS, Buffer, ImageArray, Size, as_bytes, check_size

_WIDEST_PIXEL = 8  # bytes: four samples of 16 bits


@dataclass(frozen=True)
class FileRules:
    """How the files of one kind of sender are read.

    formats: those that are accepted. on_white: whether transparent pixels are laid on white; otherwise alpha is
    dropped. is_turned: whether a picture is turned as its EXIF says. rounds: whether 16-bit samples become the nearest
    of 256 levels; otherwise their lower 8 bits are dropped.
    """

    formats: tuple[str, ...]
    on_white: bool
    is_turned: bool
    rounds: bool


CAMERA_FILES = FileRules((JPEG, PNG), on_white=False, is_turned=False, rounds=True)
REQUEST_FILES = FileRules((JPEG, PNG, WEBP), on_white=True, is_turned=True, rounds=False)


def decode_compressed(
    data: Buffer,
    max_pixels: int = MAX_PIXELS,
    expected: Size | None = None,
    *,
    rules: FileRules = CAMERA_FILES,
    encoding: str = "",
) -> ImageArray:
    """A complete file as RGB, uint8 [height, width, 3]; the first picture of several.

    expected: the only (height, width) that is accepted, before the picture is turned. encoding: that of the raw image
    that was compressed, if the sender says it (`sent_encoding`). Raises ObservationError: `bad_data` for an empty,
    truncated or corrupt file, `bad_encoding` for another format or form, `bad_size` for another size than expected,
    `too_large` for what would take too long. All but corrupt pixels are found before decoding.
    """
    flat = as_bytes(data)
    header = _checked(flat.data, max_pixels, expected, rules)
    _check_encoding(header, rules, encoding)
    level = transparent_level(flat.data, header) if rules.on_white else None
    pixels = _decoded(flat, header)
    if encodings.is_mosaic(encoding):
        return encodings.mosaic_to_rgb(encoding, pixels)
    if pixels.dtype == np.uint16:
        pixels = encodings.nearest_levels(pixels) if rules.rounds else high_bytes(pixels)
    if level is not None:
        pixels = np.where(pixels == level, np.uint8(WHITE), pixels)
    colors = rgb(pixels, on_white=rules.on_white)
    if not rules.is_turned:
        return colors
    return np.ascontiguousarray(upright(colors, orientation(flat.data, header)))


def compressed_size(data: bytes | memoryview, rules: FileRules = CAMERA_FILES) -> tuple[int, int]:
    """(height, width) from the header; nothing is decoded. Raises ObservationError."""
    header = read_header(data, rules.formats)
    return header.height, header.width


def sent_encoding(message_format: str) -> str:
    """The encoding of the raw image in the `format` of a sensor_msgs/CompressedImage, such as "bayer_rggb8" in
    "bayer_rggb8; png compressed "; "" if it does not say. Raises ObservationError for a depth image."""
    encoding, separator, _ = message_format.partition(";")
    encoding = encoding.strip()
    if not separator:
        return ""
    if encoding in encodings.DEPTH:
        raise encodings.depth_refused(encoding, "format")
    return encoding


def _checked(data: memoryview, max_pixels: int, expected: Size | None, rules: FileRules) -> FileHeader:
    """The header of a file that may be decoded. Raises ObservationError."""
    check_bytes(len(data), max_pixels, _WIDEST_PIXEL)
    header = read_header(data, rules.formats)
    check_size(header.height, header.width, max_pixels, expected)
    check_bytes(len(data), header.pixels, header.pixel_bytes)
    check_whole(data, header)
    return header


def _check_encoding(header: FileHeader, rules: FileRules, encoding: str) -> None:
    """Raise ObservationError if the file cannot hold an image of this encoding, or may be a camera's depth image."""
    if encodings.is_mosaic(encoding):
        bits = 8 * encodings.BYTES[encoding]
        if not header.is_grey or header.bits != bits:
            detail = f"{encoding} in a {header.format} that is not grey of {bits} bits a sample"
            raise ObservationError(FaultName.BAD_ENCODING, "format", detail)
        encodings.check_sides(encoding, header.height, header.width)
    elif rules is CAMERA_FILES and header.is_grey and header.bits == 16 and encoding != "mono16":
        detail = "a grey PNG of 16 bits a sample may be a depth image; if it is not, say mono16 in the message's format"
        raise ObservationError(FaultName.BAD_ENCODING, "format", detail)


def _decoded(flat: ImageArray, header: FileHeader) -> npt.NDArray[Any]:
    """OpenCV's channels: grey [h, w], BGR or BGRA [h, w, 3 or 4], uint8 or uint16. Raises ObservationError."""
    import cv2

    try:
        pixels = cv2.imdecode(flat, cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ObservationError(FaultName.BAD_DATA, "data", f"decoder: {error.err}") from error
    if pixels is None:
        raise ObservationError(FaultName.BAD_DATA, "data", "the decoder refused it")
    is_usual = pixels.dtype == (np.uint16 if header.bits == 16 else np.uint8)
    if pixels.shape[:2] != (header.height, header.width) or pixels.shape[2:] not in ((), (3,), (4,)) or not is_usual:
        detail = f"decoded {pixels.dtype} {pixels.shape}, header {header.height} x {header.width}"
        raise ObservationError(FaultName.BAD_DATA, "data", detail)
    return np.asarray(pixels)
