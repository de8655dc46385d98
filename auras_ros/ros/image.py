"""Images and stamps as messages, with no copy of the pixels beyond what the backend cannot avoid.

Our layer sends an array's own memory (the message must be published before the array changes); rclpy needs an
array.array, which costs one copy. Nothing here decodes or converts colours.
"""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import numpy.typing as npt

from . import QoSProfile, ReliabilityPolicy
from .backend import BACKEND
from .msg import message_type

# Of images only the newest counts (`newest`), but Fast DDS loses some where it may keep only one: a large message comes
# in pieces, and with them it takes the place of the one before.
IMAGES = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
NS_PER_S = 1_000_000_000
CHANNELS = {"mono8": 1, "8UC1": 1, "rgb8": 3, "bgr8": 3, "8UC3": 3, "rgba8": 4, "bgra8": 4, "8UC4": 4}


def to_time_msg(ns: int) -> Any:
    """builtin_interfaces/Time of nanoseconds. Raises ValueError if they do not fit its 32 bits of seconds."""
    sec, nanosec = divmod(int(ns), NS_PER_S)
    if not -(2**31) <= sec < 2**31:
        raise ValueError(f"stamp of {ns} ns: {sec} s do not fit 32 bits")
    return message_type("builtin_interfaces/msg/Time")(sec=sec, nanosec=nanosec)


def stamp_ns(stamped: Any) -> int:
    """Nanoseconds of a Time or Duration, of a Header, or of a message with a header."""
    if hasattr(stamped, "header"):
        stamped = stamped.header
    if hasattr(stamped, "stamp"):
        stamped = stamped.stamp
    return int(stamped.sec) * NS_PER_S + int(stamped.nanosec)


def _header(ns: int, frame_id: str) -> Any:
    return message_type("std_msgs/msg/Header")(stamp=to_time_msg(ns), frame_id=frame_id)


def _bytes_field(data: Any) -> Any:
    """A uint8[] value that the backend takes without looking at every element."""
    if BACKEND == "dds":
        return data
    value = array.array("B")
    value.frombytes(memoryview(data).cast("B"))
    return value


def image_message(array: npt.NDArray[np.uint8], *, stamp_ns: int, frame_id: str, encoding: str) -> Any:
    """sensor_msgs/Image of a uint8 array [height, width] or [height, width, channels].

    Raises TypeError for another dtype, ValueError if shape and encoding disagree; both name the field.
    """
    if array.dtype != np.uint8:
        raise TypeError(f"image data: expected uint8, got {array.dtype}")
    if encoding not in CHANNELS:
        raise ValueError(f"image encoding {encoding!r}: expected one of {', '.join(CHANNELS)}")
    shape = (*array.shape, 1) if array.ndim == 2 else array.shape
    if len(shape) != 3 or shape[2] != CHANNELS[encoding]:
        raise ValueError(f"image data of shape {array.shape} does not fit encoding {encoding}")
    height, width, channels = shape
    message = message_type("sensor_msgs/msg/Image")(header=_header(stamp_ns, frame_id))
    message.height, message.width, message.encoding = int(height), int(width), encoding
    message.is_bigendian, message.step = 0, int(width * channels)
    message.data = _bytes_field(np.ascontiguousarray(array).reshape(-1))
    return message


def compressed_message(data: bytes, *, format: str, stamp_ns: int, frame_id: str) -> Any:
    """sensor_msgs/CompressedImage of an encoded image; format is 'jpeg' or 'png' (or cv_bridge's longer form)."""
    message = message_type("sensor_msgs/msg/CompressedImage")(header=_header(stamp_ns, frame_id))
    message.format, message.data = format, _bytes_field(data)
    return message
