"""Encodes and decodes CDR (XCDR1, keyless, as rmw_cyclonedds writes it) from field descriptions.

Large numeric arrays are copied neither when written (they become pieces of a gather write) nor when read
(they are views on the payload). Every length is checked against the remaining bytes before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .fields import DTYPES, Field, check_length, one_coercer

HEADER = b"\x00\x01\x00\x00"
GATHER_BYTES = 4096
_FORMATS = {
    "int8": "b", "uint8": "B", "char": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float32": "f", "float64": "d", "bool": "?", "byte": "c",
}  # fmt: skip
_COUNT = struct.Struct("<I")


class CdrError(ValueError):
    """A payload is not a CDR message of the expected type."""


class CdrWriter:
    """The payload being written: finished pieces, and the small one that is appended to."""

    __slots__ = ("base", "buffer", "pieces")

    def __init__(self) -> None:
        self.buffer = bytearray(HEADER)
        self.base = -len(HEADER)
        self.pieces: list[Any] = []

    def align(self, size: int) -> None:
        pad = -(self.base + len(self.buffer)) & (size - 1)
        if pad:
            self.buffer += b"\0" * pad

    def count(self, number: int) -> None:
        """Append the length at the beginning of a sequence or a text."""
        self.align(4)
        self.buffer += _COUNT.pack(number)

    def extend(self, values: Any) -> None:
        """Append an array's bytes: in place if small, as its own piece of the gather write if large."""
        view = memoryview(values).cast("B")
        if view.nbytes < GATHER_BYTES:
            self.buffer += view
            return
        self.pieces += (self.buffer, view)
        self.base += len(self.buffer) + view.nbytes
        self.buffer = bytearray()

    def finish(self) -> list[Any]:
        return [*self.pieces, self.buffer] if self.buffer else self.pieces


Encode = Callable[[CdrWriter, Any], None]
Decode = Callable[[memoryview, int], "tuple[Any, int]"]


def _encode_scalar(base: str) -> Encode:
    packer = struct.Struct("<" + _FORMATS[base])
    pack, size = packer.pack, packer.size

    def encode(out: CdrWriter, value: Any) -> None:
        if size > 1:
            out.align(size)
        out.buffer += pack(value)

    return encode


def _encode_string(out: CdrWriter, value: str) -> None:
    data = value.encode()
    out.count(len(data) + 1)
    out.buffer += data
    out.buffer.append(0)


def encoder(field: Field, owner: str, nested: Encode | None, nested_type: type | None) -> Encode:
    """The function that appends one field's value; nested is the encoder of a message field."""
    one = nested or (_encode_string if field.base == "string" else _encode_scalar(field.base))
    if field.kind == "one":
        return one
    counted, where = field.kind == "sequence", f"{owner}.{field.name}"
    if field.numeric:
        size = DTYPES[field.base].itemsize

        def numbers(out: CdrWriter, values: Any) -> None:
            if counted:
                out.count(len(values))
            if len(values):
                out.align(size)
                out.extend(values)

        return numbers
    check = one_coercer(field, where, nested_type)

    def items(out: CdrWriter, values: Sequence[Any]) -> None:
        if counted:
            out.count(len(values))
        for value in values:
            one(out, check(value))
        if not counted:
            check_length(where, field, len(values))

    return items


def _decode_scalar(base: str, order: str) -> Decode:
    unpacker = struct.Struct(order + _FORMATS[base])
    unpack, size = unpacker.unpack_from, unpacker.size

    def decode(view: memoryview, at: int) -> tuple[Any, int]:
        at += -at & (size - 1)
        return unpack(view, at)[0], at + size

    return decode


def _decode_string(order: str) -> Decode:
    count = struct.Struct(order + "I").unpack_from

    def decode(view: memoryview, at: int) -> tuple[str, int]:
        at += -at & 3
        length = count(view, at)[0]
        end = at + 4 + length
        if end > len(view):
            raise CdrError(f"a string of {length} bytes, but {len(view) - at - 4} are left")
        if length == 0:
            return "", end
        if view[end - 1] != 0:
            raise CdrError("a string without its closing NUL")
        return str(view[at + 4 : end - 1], "utf-8"), end

    return decode


def _decode_numbers(field: Field, order: str, count: Callable[[memoryview, int], tuple[int, int]]) -> Decode:
    dtype = DTYPES[field.base].newbyteorder("<" if order == "<" else ">")
    native, size, is_bool = DTYPES[field.base], dtype.itemsize, field.base == "bool"

    def decode(view: memoryview, at: int) -> tuple[Any, int]:
        length, at = count(view, at)
        if length == 0:
            return np.empty(0, native), at
        at += -at & (size - 1)
        if length * size > len(view) - at:
            raise CdrError(f"{field.name}: {length} values, but {max(0, len(view) - at)} bytes are left")
        if is_bool:
            return np.frombuffer(view, np.uint8, length, at) != 0, at + length
        values = np.frombuffer(view, dtype, length, at)
        return values if dtype == native else values.astype(native), at + length * size

    return decode


def decoder(field: Field, order: str, nested: Decode | None) -> Decode:
    """The function that reads one field at an offset and returns (value, next offset); order '<' or '>'."""
    unpack_count = struct.Struct(order + "I").unpack_from

    def count(view: memoryview, at: int) -> tuple[int, int]:
        if field.kind == "array":
            return field.length, at
        at += -at & 3
        # A bound is not enforced here: rclpy sends and takes longer ones, and a peer's message must still be read.
        return unpack_count(view, at)[0], at + 4

    if field.kind != "one" and field.numeric:
        return _decode_numbers(field, order, count)
    single = nested or (_decode_string(order) if field.base == "string" else _decode_scalar(field.base, order))
    if field.kind == "one":
        return single

    def items(view: memoryview, at: int) -> tuple[list[Any], int]:
        length, at = count(view, at)
        # Every item takes at least one byte, so a larger length is false and must not cost memory.
        if length > len(view) - at:
            raise CdrError(f"{field.name}: {length} items, but {len(view) - at} bytes are left")
        values = []
        for _ in range(length):
            value, at = single(view, at)
            values.append(value)
        return values, at

    return items


def byte_order(payload: memoryview) -> str:
    """'<' or '>' by the encapsulation header. Raises CdrError for any encoding other than plain CDR."""
    if len(payload) < len(HEADER):
        raise CdrError(f"{len(payload)} bytes, too short for the encapsulation header")
    kind = bytes(payload[:2])
    if kind == b"\x00\x01":
        return "<"
    if kind == b"\x00\x00":
        return ">"
    raise CdrError(f"encapsulation {kind.hex()} is not plain CDR")
