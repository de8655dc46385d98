"""Callbacks of topics that anybody may publish: the size of a payload is checked before it is deserialised.

Deserialising holds the interpreter lock (in rclpy in one call), so the size bounds that time too. A payload that is too
large, or no message of the topic's type, reaches no callback: it is refused, and the caller counts and logs it. Its
subscription must be `raw`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auras_ros.repeated_lines import RepeatedLines

from . import Node, deserialize_message
from .backend import BACKEND
from .cdr_reader import PayloadError
from .payload_check import check_payload
from .text import first_count

SHOWN_CHARS = 300
TEXT_OVERHEAD_BYTES = 12  # of a String: the encapsulation, the length, the zero at the end, and padding


@dataclass(frozen=True)
class PayloadLimits:
    """Limits of a payload: bytes, and elements of its leading sequence (None: it does not begin with a sequence)."""

    max_bytes: int
    max_first: int | None = None

    def exceeded(self, payload: memoryview | bytes) -> str:
        """Which limit is exceeded; empty if none is."""
        if len(payload) > self.max_bytes:
            return f"at most {self.max_bytes}"
        if self.max_first is not None and len(payload) >= 8 and first_count(payload) > self.max_first:
            return f"{first_count(payload)} elements at its beginning, at most {self.max_first}"
        return ""


def text_limits(max_bytes: int) -> PayloadLimits:
    """Of a std_msgs/String whose text has at most `max_bytes` bytes."""
    return PayloadLimits(max_bytes + TEXT_OVERHEAD_BYTES)


class RefusedMessages:
    """The refused messages of a node's topics: their number, and the newest reason. Used in the executor's thread."""

    def __init__(self, node: Node) -> None:
        self._logger = node.get_logger()
        self._lines = RepeatedLines()
        self.count = 0
        self.newest = ""

    def add(self, topic: str, text: str) -> None:
        """Count a refusal, and log it where a line about this topic is due."""
        self.count += 1
        self.newest = text[:SHOWN_CHARS]
        if line := self._lines.line(topic, f"refused: {self.newest}"):
            self._logger.warning(line)


def read_message(payload: memoryview | bytes, kind: Any) -> Any:
    """The message of the type `kind` in a payload. Raises PayloadError if there is none."""
    try:
        if BACKEND == "rclpy":
            check_payload(payload, kind)
        return deserialize_message(payload, kind)
    except (ValueError, RuntimeError) as error:  # ours, rclpy's
        raise PayloadError(str(error)) from error


def bounded(
    topic: str,
    read: Callable[[memoryview | bytes], Any],
    callback: Callable[[Any], object],
    limits: PayloadLimits,
    refuse: Callable[[PayloadError], object],
) -> Callable[[memoryview | bytes], None]:
    """The callback of a raw subscription: it calls `callback(message)` for messages within the limits, and `refuse` for
    the others. topic: its full name, for the error's text. read: the message in a payload, such as `read_message` of
    one type; it raises PayloadError."""
    take = bounded_with_info(topic, read, lambda message, _: callback(message), limits, refuse)
    return lambda payload: take(payload, None)


def bounded_with_info(
    topic: str,
    read: Callable[[memoryview | bytes], Any],
    callback: Callable[[Any, Any], object],
    limits: PayloadLimits,
    refuse: Callable[[PayloadError], object],
) -> Callable[[memoryview | bytes, Any], None]:
    """As `bounded`, for a callback that also gets what the middleware says of the message: `callback(message, info)`.
    `ros.identity` reads the publisher in it."""

    def take(payload: memoryview | bytes, info: Any) -> None:
        try:
            if exceeded := limits.exceeded(payload):
                raise PayloadError(exceeded)
            message = read(payload)
        except PayloadError as error:
            refuse(PayloadError(f"{len(payload)} bytes on {topic}: {error}"))
            return
        callback(message, info)

    return take
