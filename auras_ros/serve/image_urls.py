"""Images of a request, from data URLs to pixels. Nothing is fetched; the decoder is that of the cameras' files."""

from __future__ import annotations

import base64
import re

from auras_ros.checkpoints.vlm.pictures import ImagePixels, PictureError
from auras_ros.observation import REQUEST_FILES, ObservationError, decode_compressed

_VIDEO_HEAD = re.compile(r"data:video/jpeg;base64,", re.IGNORECASE)
_HEAD = re.compile(r"data:image/(png|jpeg|jpg|webp);base64,", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,31}:")


def read_image(url: str, most_pixels: int) -> ImagePixels:
    """uint8 RGB [height, width, 3], upright as its EXIF says; the first picture of several. Raises PictureError."""
    head = _HEAD.match(url)
    if head is None:
        _check_scheme(url)
        raise PictureError("expected data:image/png, data:image/jpeg or data:image/webp, and ;base64,")
    return decode(_bytes(url[head.end() :]), most_pixels)


def video_frames(url: str) -> list[str]:
    """The frames of a video as images' URLs. A video is its frames as JPEG files, with commas between them, as vLLM's
    clients send it. Raises PictureError."""
    head = _VIDEO_HEAD.match(url)
    if head is None:
        _check_scheme(url)
        raise PictureError(
            "expected data:video/jpeg;base64, and the frames as JPEG files with commas between them; a video's file is "
            "not decoded"
        )
    return [f"data:image/jpeg;base64,{frame}" for frame in url[head.end() :].split(",")]


def _check_scheme(url: str) -> None:
    """Raises PictureError for a URL that would have to be fetched."""
    scheme = _SCHEME.match(url)
    if scheme is not None and scheme[0].lower() != "data:":
        raise PictureError(f"{scheme[0]} URLs are not taken, as this server fetches nothing; send a data: URL")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError as error:
        raise PictureError(f"not base64: {error}") from error


def decode(data: bytes, most_pixels: int) -> ImagePixels:
    """Raises PictureError."""
    try:
        return decode_compressed(data, most_pixels, rules=REQUEST_FILES)
    except ObservationError as error:
        raise PictureError(error.fault.detail) from error
