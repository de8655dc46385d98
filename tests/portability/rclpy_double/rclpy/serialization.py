"""rclpy.serialization. A payload carries its message; a text's is real CDR, for those who read it without this."""

from __future__ import annotations

import struct
from typing import Any

from .exceptions import RCLError


class Payload(bytes):
    """What a raw subscription is given."""

    message: Any


def serialize_message(message: Any) -> bytes:
    text = getattr(message, "data", None)
    data = text.encode() + b"\0" if isinstance(text, str) else b""
    made = Payload(b"\0\1\0\0" + struct.pack("<I", len(data)) + data)
    made.message = message
    return made


def deserialize_message(serialized_message: bytes, message_type: Any) -> Any:
    if not isinstance(serialized_message, Payload) or not isinstance(serialized_message.message, message_type):
        raise RCLError("failed to deserialize")
    return serialized_message.message
