"""Messages as the bytes that go over the wire, on either ROS layer. `publisher.publish(payload)` sends any bytes."""

from __future__ import annotations

from typing import Any

from auras_ros.ros import BACKEND

HEADER = b"\0\1\0\0"  # CDR, little endian


def serialized(message: Any) -> bytes:
    """The payload of a message."""
    if BACKEND == "rclpy":
        from rclpy.serialization import serialize_message

        return bytes(serialize_message(message))
    from auras_ros.ros.dds.messages import serialize_bytes

    return bytes(serialize_bytes(message))
