"""Images of a request, from data URLs to pixels. Nothing is fetched, nothing is decoded before its size is known."""

from __future__ import annotations

import base64
import io
import re

import numpy as np

from auras_ros.checkpoints.vlm.pictures import ImagePixels, PictureError

FORMATS = ("PNG", "JPEG", "WEBP")
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
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise PictureError("images need the Pillow library: pip install 'auras_ros[vlm]'") from error
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > most_pixels:
                raise PictureError(f"{width} x {height} pixels, expected {most_pixels} at most")
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError(f"not an image of {', '.join(FORMATS)}") from error
    except Exception as error:  # a decoder may raise anything
        raise PictureError(f"the image cannot be decoded: {error}") from error
