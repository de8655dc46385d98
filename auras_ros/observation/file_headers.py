"""Headers of JPEG, PNG and WebP files: their size and form, whether they are complete, what decoding them costs.

All of it is read before a decoder runs, because decoders fill what is missing with grey and only print a warning. The
cost of a file is bounded by its bytes, its pixels, its parts, and the passes over all pixels that the scans of a
progressive JPEG are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .fault import FaultName, ObservationError

Data = bytes | memoryview

JPEG = "JPEG"
PNG = "PNG"
WEBP = "WebP"

MORE_BYTES = 65_536  # of a file, beyond those of its pixels: headers, colour profiles
MAX_PARTS = 10_000  # segments of a JPEG file, chunks of the others: cameras write a few dozen at most
MAX_SCANS = 100  # of a progressive JPEG; ten are usual. Each one is a pass over the whole image
MAX_SCANNED_PIXELS = 1 << 29  # scans times pixels: 16 scans of 32 million pixels, which take half a second

_PNG_BEGIN = b"\x89PNG\r\n\x1a\n"
_JPEG_BEGIN = b"\xff\xd8"
# Start-of-frame markers; C4, C8 and CC in that range mean other things.
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset(range(0xD0, 0xD8)) | {0x01}
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_SCAN = b"\xff\xda"
_END = b"\xff\xd9"
_RIFF_HEADER = 12  # bytes: RIFF, the size, WEBP
GREY, COLOUR, PALETTE, GREY_ALPHA, COLOUR_ALPHA = 0, 2, 3, 4, 6  # PNG's colour types
_SAMPLES = {GREY: 1, COLOUR: 3, PALETTE: 1, GREY_ALPHA: 2, COLOUR_ALPHA: 4}


@dataclass(frozen=True)
class FileHeader:
    """What a file's header says.

    format: one of JPEG, PNG, WEBP. bits: of a sample. is_grey: whether a pixel is one sample of brightness.
    pixel_bytes: of an uncompressed pixel.
    """

    format: str
    height: int
    width: int
    bits: int = 8
    is_grey: bool = False
    pixel_bytes: int = 4

    @property
    def pixels(self) -> int:
        return self.height * self.width


def read_header(data: Data, formats: Collection[str]) -> FileHeader:
    """Read the header of a file of one of these formats; nothing is decoded. Raises ObservationError: `bad_data`, or
    `bad_encoding` for another format or form."""
    if not len(data):
        raise ObservationError(FaultName.BAD_DATA, "data", "empty")
    if PNG in formats and data[:8] == _PNG_BEGIN:
        return _png_header(data)
    if JPEG in formats and data[:2] == _JPEG_BEGIN:
        return _jpeg_header(data)
    if WEBP in formats and data[:4] == b"RIFF" and data[8:_RIFF_HEADER] == b"WEBP":
        return _webp_header(data)
    raise ObservationError(FaultName.BAD_ENCODING, "data", f"expected a file of {', '.join(formats)}")


def check_bytes(size: int, pixels: int, pixel_bytes: int = 4) -> None:
    """Raise ObservationError if a file has more bytes than so many pixels need."""
    if size > pixel_bytes * pixels + MORE_BYTES:
        raise ObservationError(FaultName.TOO_LARGE, "data", f"{size} bytes for at most {pixels} pixels")


def check_whole(data: Data, header: FileHeader) -> None:
    """Raise ObservationError for a file that has not come to its end, or costs too much."""
    if header.format == JPEG:
        _check_jpeg(bytes(data), header.pixels)
    elif header.format == PNG:
        for _ in png_chunks(data):
            pass
    else:
        for _ in webp_chunks(data):
            pass


def png_chunks(data: Data) -> Iterator[tuple[bytes, Data]]:
    """Name and content of each chunk up to the end's. Raises ObservationError for a file that ends before, a wrong
    checksum, and for too many chunks."""
    at = len(_PNG_BEGIN)
    for _ in range(MAX_PARTS):
        if at + 12 > len(data):
            raise _truncated("PNG: no end chunk")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            raise _truncated("PNG: no end chunk")
        if zlib.crc32(data[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
            raise ObservationError(FaultName.BAD_DATA, "data", f"PNG: checksum of chunk {kind!r} at byte {at}")
        yield kind, data[at + 8 : end - 4]
        if kind == b"IEND":
            return
        at = end
    raise _too_many("chunks", MAX_PARTS)


def webp_chunks(data: Data) -> Iterator[tuple[bytes, Data]]:
    """Name and content of each chunk. Raises ObservationError for a file that ends before, and for too many chunks."""
    size = int(struct.unpack_from("<I", data, 4)[0]) + 8
    if size > len(data):
        raise _truncated(f"WebP: {len(data)} of {size} bytes")
    at = _RIFF_HEADER
    for _ in range(MAX_PARTS):
        if at + 8 > size:
            return
        kind, length = struct.unpack_from("<4sI", data, at)
        begin = at + 8
        at = begin + length + length % 2
        if at > size + 1:  # the last padding byte may be missing
            raise _truncated("WebP: a chunk beyond the end")
        yield kind, data[begin : begin + length]
    raise _too_many("chunks", MAX_PARTS)


def transparent_level(data: Data, header: FileHeader) -> int | None:
    """The one level of a grey PNG that is transparent, which OpenCV ignores; None if it names none.

    As in Pillow the level is one of the file's own bits, and is compared with samples that are stretched to 0 to 255:
    with 2 and 4 bits only black can be it. Raises ObservationError for a PNG of 16 bits a sample that names a level or
    a colour: Pillow compares its lower 8 bits with the upper ones of the samples.
    """
    if header.format != PNG:
        return None
    named = next((bytes(content) for kind, content in png_chunks(data) if kind == b"tRNS"), b"")
    if named and header.bits == 16:
        detail = "a PNG of 16 bits a sample with a transparent colour is not taken: save it with an alpha channel"
        raise ObservationError(FaultName.BAD_ENCODING, "data", detail)
    if not header.is_grey or len(named) < 2:
        return None
    level = int(struct.unpack_from(">H", named)[0])
    return 255 * min(level, 1) if header.bits == 1 else level


def jpeg_segments(data: Data) -> Iterator[tuple[int, int, Data]]:
    """Marker, position and content of each segment before the first scan. Raises ObservationError."""
    at = len(_JPEG_BEGIN)
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
        elif marker in (_END_OF_IMAGE, _START_OF_SCAN):
            return
        else:
            length = int(struct.unpack_from(">H", data, at + 2)[0])
            yield marker, at, data[at + 4 : at + 2 + length]
            at += 2 + length
    raise _too_many("segments", MAX_PARTS)


def _png_header(data: Data) -> FileHeader:
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise _truncated("PNG header")
    width, height, bits, kind = struct.unpack_from(">IIBB", data, 16)
    samples = _SAMPLES.get(kind)
    if samples is None or bits not in (1, 2, 4, 8, 16):
        raise ObservationError(FaultName.BAD_DATA, "data", f"PNG: {bits} bits a sample of colour type {kind}")
    return FileHeader(PNG, height, width, bits, kind == GREY, max(4, samples * bits // 8))


def _jpeg_header(data: Data) -> FileHeader:
    for marker, at, _ in jpeg_segments(data):
        if marker in _SOF:
            return _start_of_frame(data, at)
    raise ObservationError(FaultName.BAD_DATA, "data", "JPEG: no frame header before the scan")


def _start_of_frame(data: Data, at: int) -> FileHeader:
    if at + 10 > len(data):
        raise _truncated("JPEG header")
    bits, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
    if components == 4:
        detail = "JPEG with the 4 components of CMYK is not taken: save it as RGB"
        raise ObservationError(FaultName.BAD_ENCODING, "data", detail)
    if bits != 8 or components not in (1, 3):
        detail = f"JPEG with {bits} bits a sample and {components} components, expected 8 and 1 or 3"
        raise ObservationError(FaultName.BAD_ENCODING, "data", detail)
    return FileHeader(JPEG, height, width, bits, components == 1)


def _webp_header(data: Data) -> FileHeader:
    """From the first chunk: a canvas (VP8X), or an image with loss (VP8) or without (VP8L)."""
    if len(data) < _RIFF_HEADER + 18:
        raise _truncated("WebP header")
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        return FileHeader(WEBP, height, width)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return FileHeader(WEBP, height & 0x3FFF, width & 0x3FFF)  # the upper two bits are a scale for displays
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return FileHeader(WEBP, (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1)
    raise ObservationError(FaultName.BAD_DATA, "data", "WebP: no image header in the first chunk")


def _check_jpeg(data: bytes, pixels: int) -> None:
    """FF D9 cannot stand within a scan, and a thumbnail's stands before the last scan; what follows is ignored."""
    if data.rfind(_END) < data.rfind(_SCAN):
        raise _truncated("JPEG: no end marker")
    scans = data.count(_SCAN)
    if scans > MAX_SCANS:
        raise _too_many("scans", MAX_SCANS)
    if scans > 1 and scans * pixels > MAX_SCANNED_PIXELS:
        raise _too_many("scans", MAX_SCANNED_PIXELS // pixels)


def _too_many(what: str, most: int) -> ObservationError:
    return ObservationError(FaultName.TOO_LARGE, "data", f"more than {most} {what}")


def _truncated(what: str) -> ObservationError:
    return ObservationError(FaultName.BAD_DATA, "data", f"truncated: {what}")
