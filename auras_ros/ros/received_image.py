"""Images as they are received, read from the payload without a copy of the pixels.

rclpy's own conversion copies them twice while it holds the interpreter lock. These have the fields of the messages that
a reader of images needs, by the messages' names.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cdr_reader import CdrReader, PayloadError

MAX_TEXT_BYTES = 1024  # of frame_id, encoding and format


@dataclass(frozen=True)
class ReceivedStamp:
    """builtin_interfaces/Time."""

    sec: int
    nanosec: int


@dataclass(frozen=True)
class ReceivedHeader:
    """std_msgs/Header."""

    stamp: ReceivedStamp
    frame_id: str


@dataclass(frozen=True, eq=False)
class ReceivedImage:
    """sensor_msgs/Image. data: a view on the payload."""

    header: ReceivedHeader
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: memoryview


@dataclass(frozen=True, eq=False)
class ReceivedFile:
    """sensor_msgs/CompressedImage. data: a view on the payload."""

    header: ReceivedHeader
    format: str
    data: memoryview


def read_image(payload: memoryview | bytes) -> ReceivedImage:
    """Raises PayloadError if the payload is no sensor_msgs/Image."""
    reader = CdrReader(payload)
    return ReceivedImage(
        header=_header(reader),
        height=reader.number("I"),
        width=reader.number("I"),
        encoding=_text(reader),
        is_bigendian=reader.number("B"),
        step=reader.number("I"),
        data=reader.take(reader.count()),
    )


def read_compressed(payload: memoryview | bytes) -> ReceivedFile:
    """Raises PayloadError if the payload is no sensor_msgs/CompressedImage."""
    reader = CdrReader(payload)
    return ReceivedFile(header=_header(reader), format=_text(reader), data=reader.take(reader.count()))


def _header(reader: CdrReader) -> ReceivedHeader:
    stamp = ReceivedStamp(sec=reader.number("i"), nanosec=reader.number("I"))
    return ReceivedHeader(stamp, _text(reader))


def _text(reader: CdrReader) -> str:
    data = reader.text()
    if len(data) > MAX_TEXT_BYTES:
        raise PayloadError(f"a text of {len(data)} bytes, at most {MAX_TEXT_BYTES}")
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PayloadError(str(error)) from error
