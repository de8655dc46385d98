"""Images of a request, from data URLs to pixels. Nothing is fetched; the decoder is that of the cameras' files."""

from __future__ import annotations

import base64
import re

from auras_ros.checkpoints.vlm.pictures import ImagePixels, PictureError
from auras_ros.observation import REQUEST_FILES, ObservationError, decode_compressed

_HEAD = re.compile(r"data:image/(png|jpeg|jpg|webp);base64,", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,31}:")


def read_image(url: str, most_pixels: int) -> ImagePixels:
    """uint8 RGB [height, width, 3], upright as its EXIF says; the first picture of several. Raises PictureError."""
    head = _HEAD.match(url)
    if head is None:
        scheme = _SCHEME.match(url)
        if scheme is not None and scheme[0].lower() != "data:":
            raise PictureError(f"{scheme[0]} URLs are not taken, as this server fetches nothing; send a data: URL")
        raise PictureError("expected data:image/png, data:image/jpeg or data:image/webp, and ;base64,")
    try:
        data = base64.b64decode(url[head.end() :].encode("ascii"), validate=True)
    except ValueError as error:
        raise PictureError(f"not base64: {error}") from error
    return decode(data, most_pixels)


def decode(data: bytes, most_pixels: int) -> ImagePixels:
    """Raises PictureError."""
    try:
        return decode_compressed(data, most_pixels, rules=REQUEST_FILES)
    except ObservationError as error:
        raise PictureError(error.fault.detail) from error
