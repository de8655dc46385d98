"""Reads only the beginning of a payload: the text of a std_msgs/String, for another process to parse, and how many
elements a leading sequence has."""

from __future__ import annotations

import struct

_COUNT_AT, _TEXT_AT = 4, 8  # after the encapsulation header, and after the length


def first_count(payload: memoryview | bytes) -> int:
    """The count at the beginning of a sequence or text. The payload has at least eight bytes."""
    view = memoryview(payload)
    count: int = struct.unpack_from(">I" if view[1] == 0 else "<I", view, _COUNT_AT)[0]
    return count


def text_bytes(payload: memoryview | bytes) -> memoryview:
    """The UTF-8 bytes of the text, as a view. Raises ValueError if the payload is not such a message."""
    view = memoryview(payload)
    if len(view) <= _TEXT_AT or view[0] != 0 or view[1] not in (0, 1):
        raise ValueError(f"{len(view)} bytes that are not a text in CDR")
    size = first_count(view)
    if not 1 <= size <= len(view) - _TEXT_AT:
        raise ValueError(f"a text of {size} bytes in {len(view)}")
    return view[_TEXT_AT : _TEXT_AT + size - 1]
