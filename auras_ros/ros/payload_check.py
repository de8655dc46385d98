"""Whether a payload is a message of a type, by its lengths alone: nothing is converted, and nothing is copied.

rclpy's deserialiser is asked only for payloads that pass. Its generated C code writes a line to standard error for each
sequence that is longer than the payload, and nothing can switch that off.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from .cdr_reader import CdrReader, PayloadError
from .msg import message_type

Skip = Callable[[CdrReader], None]

SIZES = {
    "boolean": 1,
    "octet": 1,
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "float": 4,
    "int64": 8,
    "uint64": 8,
    "double": 8,
}  # bytes of the primitive types, by the names that rclpy's messages give
_SEQUENCE = re.compile(r"sequence<(?P<element>[^,]+)(, \d+)?>")
_ARRAY = re.compile(r"(?P<element>.+)\[(?P<count>\d+)\]")


def check_payload(payload: memoryview | bytes, kind: Any) -> None:
    """Raise PayloadError if the payload is too short for what it says. kind: one of rclpy's message classes."""
    _skip_message(kind)(CdrReader(payload))


@functools.cache
def _skip_message(kind: Any) -> Skip:
    steps = [_skip_field(field_type) for field_type in kind.get_fields_and_field_types().values()]

    def skip(reader: CdrReader) -> None:
        for step in steps:
            step(reader)

    return skip


def _skip_field(field_type: str) -> Skip:
    if found := _SEQUENCE.fullmatch(field_type):
        return _skip_sequence(found["element"])
    if found := _ARRAY.fullmatch(field_type):
        element, count = found["element"], int(found["count"])
        return lambda reader: _skip_elements(reader, element, count)
    return _skip_one(field_type)


def _skip_sequence(element: str) -> Skip:
    return lambda reader: _skip_elements(reader, element, reader.count())


def _skip_elements(reader: CdrReader, element: str, count: int) -> None:
    if count > reader.remaining:  # every element has at least one byte
        raise PayloadError(f"it says {count} elements where {max(0, reader.remaining)} bytes are left")
    if element in SIZES:
        if count:
            reader.align(SIZES[element])
            reader.take(count * SIZES[element])
        return
    skip = _skip_one(element)
    for _ in range(count):
        skip(reader)


@functools.cache
def _skip_one(element: str) -> Skip:
    if element in SIZES:
        return functools.partial(_skip_primitive, SIZES[element])
    if element.startswith("string"):  # string<20> has a bound, which rclpy does not check either
        return _skip_text
    package, name = element.split("/")
    return _skip_message(message_type(f"{package}/msg/{name}"))


def _skip_primitive(size: int, reader: CdrReader) -> None:
    reader.align(size)
    reader.take(size)


def _skip_text(reader: CdrReader) -> None:
    reader.text()
