"""Which way up a photograph is: the orientation in a file's EXIF or XMP, and the picture turned by it.

Phones and cameras store a picture as their sensor saw it, and beside it how it must be turned.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .fault import ObservationError
from .file_headers import JPEG, PNG, Data, FileHeader, jpeg_segments, png_chunks, webp_chunks

UPRIGHT = 1
_ORIENTATION = 0x0112  # EXIF's tag
_SHORT, _LONG = 3, 4  # types of its value
_APP1 = 0xE1
_EXIF = b"Exif\x00\x00"
_XMP = b"http://ns.adobe.com/xap/1.0/\x00"
_PNG_XMP = b"XML:com.adobe.xmp\x00\x00\x00\x00\x00"  # not compressed, without language and translation
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


def orientation(data: Data, header: FileHeader) -> int:
    """1 to 8, as EXIF numbers them; XMP's if the file has none in its EXIF; 1 if it has neither."""
    from_xmp = UPRIGHT
    try:
        for kind, block in _blocks(data, header):
            if kind == _EXIF:
                found = _in_exif(bytes(block))
                if found is not None:
                    return found
            elif (match := _IN_XMP.search(bytes(block))) is not None:
                from_xmp = int(match[1])
    except ObservationError:  # what stands before the first scan of a JPEG need not be whole: its decoder judges
        return UPRIGHT
    return from_xmp


def upright(pixels: npt.NDArray[np.uint8], turned: int) -> npt.NDArray[np.uint8]:
    """An image [height, width, colours] of this orientation, turned so that it is upright. A view, or the same array
    if it is upright already."""
    if turned in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if turned in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if turned in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _blocks(data: Data, header: FileHeader) -> Iterator[tuple[bytes, Data]]:
    """_EXIF or _XMP, and the content of each such part of the file."""
    if header.format == JPEG:
        for marker, _, content in jpeg_segments(data):
            for name in (_EXIF, _XMP):
                if marker == _APP1 and content[: len(name)] == name:
                    yield name, content[len(name) :]
        return
    for kind, content in png_chunks(data) if header.format == PNG else webp_chunks(data):
        if kind in (b"eXIf", b"EXIF"):
            yield _EXIF, content[len(_EXIF) :] if content[: len(_EXIF)] == _EXIF else content
        elif kind == b"iTXt" and content[: len(_PNG_XMP)] == _PNG_XMP:
            yield _XMP, content[len(_PNG_XMP) :]
        elif kind == b"XMP ":
            yield _XMP, content


def _in_exif(block: bytes) -> int | None:
    """The orientation in the first directory of a TIFF structure; None if it has none."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 8:
        return None
    (at,) = struct.unpack_from(f"{order}I", block, 4)
    if at + 2 > len(block):
        return None
    (count,) = struct.unpack_from(f"{order}H", block, at)
    for entry in range(at + 2, min(at + 2 + 12 * count, len(block) - 11), 12):
        tag, kind = struct.unpack_from(f"{order}HH", block, entry)
        if tag == _ORIENTATION:
            if kind not in (_SHORT, _LONG):
                return None
            (value,) = struct.unpack_from(f"{order}{'H' if kind == _SHORT else 'I'}", block, entry + 8)
            return value if 1 <= value <= 8 else UPRIGHT
    return None
