"""Whose message it is, from what the middleware says of the message.

Our layer gives the publisher's identity as bytes, rclpy 9 as a mapping whose `data` has the bytes, and rclpy 7.1 gives
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .backend import BACKEND
from .supported import rclpy_version

UNKNOWN = b""  # the publisher of a message, if the middleware does not identify it
FIRST_RCLPY = 9  # the first major version of rclpy that identifies publishers


def publisher_of(info: Any) -> bytes:
    """The publisher of a message; UNKNOWN if the middleware does not say, or in a form that no ROS had yet."""
    try:
        identity = info.get("publisher_gid", UNKNOWN)
        return bytes(identity["data"]) if isinstance(identity, Mapping) else bytes(identity)
    except Exception:  # noqa: BLE001  asking who must not undo what the message does
        return UNKNOWN


def identifies(info: Any) -> bool:
    """Whether the middleware identifies publishers: then an unknown one is a publisher that is gone."""
    return isinstance(info, Mapping) and "publisher_gid" in info


def _identifies_publishers() -> bool:
    if BACKEND == "dds":
        return True
    major = rclpy_version().partition(".")[0]
    return major.isdecimal() and int(major) >= FIRST_RCLPY


IDENTIFIES_PUBLISHERS = _identifies_publishers()
