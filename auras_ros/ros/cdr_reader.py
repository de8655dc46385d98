"""Reads a payload in CDR step by step, and never beyond its end: what a message says of its own lengths is not trusted.

Used for what rclpy's deserialiser cannot give: a look at a payload before it is converted, and an image without a copy.
"""

from __future__ import annotations

import struct

HEADER_BYTES = 4  # the encapsulation: representation, byte order, options


class PayloadError(ValueError):
    """A payload that is no message of its topic's type, or larger than the topic's limits."""


class CdrReader:
    """Each method reads the next field. All raise PayloadError if the payload does not contain it."""

    def __init__(self, payload: memoryview | bytes) -> None:
        view = memoryview(payload)
        if len(view) < HEADER_BYTES or view[0] != 0 or view[1] not in (0, 1):
            raise PayloadError("not in CDR")
        self._order = "<" if view[1] == 1 else ">"
        self._body = view[HEADER_BYTES:]
        self._position = 0

    @property
    def remaining(self) -> int:
        """Number of bytes that were not read."""
        return len(self._body) - self._position

    def align(self, size: int) -> None:
        """Go to the next multiple of `size` bytes, where CDR puts a number of that size."""
        self._position += -self._position % size

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, as a view on the payload."""
        if size > self.remaining:
            raise PayloadError(f"it says {size} bytes where {max(0, self.remaining)} are left")
        start = self._position
        self._position += size
        return self._body[start : self._position]

    def number(self, code: str) -> int:
        """An integer, by its code in `struct`."""
        size = struct.calcsize(code)
        self.align(size)
        value: int = struct.unpack(self._order + code, self.take(size))[0]
        return value

    def count(self) -> int:
        """The number of elements at the beginning of a sequence."""
        return self.number("I")

    def text(self) -> memoryview:
        """The bytes of a text, without the zero at its end."""
        characters = self.take(self.count())
        if len(characters) and characters[-1] == 0:
            return characters[:-1]
        return characters
