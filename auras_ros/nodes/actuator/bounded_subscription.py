"""Subscriptions to topics that anybody may publish: the size of a payload is checked before it is deserialised.

Deserialising holds the interpreter lock (in rclpy in one call), so the size bounds that time too. A payload that is too
large, or no message of the topic's type, reaches no callback: it is counted and logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.texts import MessageError
from auras_ros.ros import Node, QoSProfile, deserialize_message
from auras_ros.ros.text import first_count

SAID_EVERY_S = 1.0  # shortest time between two log lines of one topic
SHOWN_CHARS = 300


@dataclass(frozen=True)
class PayloadLimits:
    """Limits of a payload: bytes, and elements of its leading sequence (None: it does not begin with a sequence)."""

    max_bytes: int
    max_first: int | None = None

    def exceeded(self, payload: bytes) -> str:
        """Which limit is exceeded; empty if none is."""
        if len(payload) > self.max_bytes:
            return f"at most {self.max_bytes}"
        if self.max_first is not None and len(payload) >= 8 and first_count(payload) > self.max_first:
            return f"{first_count(payload)} elements at its beginning, at most {self.max_first}"
        return ""


class RefusedMessages:
    """The refused messages of a node's topics: their number, and the newest reason. Used in the executor's thread."""

    def __init__(self, node: Node) -> None:
        self._logger = node.get_logger()
        self._said_s: dict[str, float] = {}
        self.count, self.newest = 0, ""

    def add(self, topic: str, text: str) -> None:
        """Count a refusal; log it if nothing was logged for this topic for a second."""
        self.count, self.newest = self.count + 1, text[:SHOWN_CHARS]
        now_s = time.monotonic()
        if now_s - self._said_s.get(topic, -SAID_EVERY_S) >= SAID_EVERY_S:
            self._said_s[topic] = now_s
            self._logger.warning(f"refused: {self.newest}")


def subscribe(
    qos: QosWatch,
    kind: Any,
    topic: str,
    callback: Callable[[Any], object],
    profile: QoSProfile,
    limits: PayloadLimits,
    refused: RefusedMessages,
) -> None:
    """Call `callback(message)` for messages within the limits; it may refuse one by a MessageError."""
    name = qos.node.resolve_topic_name(topic)

    def take(payload: bytes) -> None:
        if why := limits.exceeded(payload):
            refused.add(topic, f"{len(payload)} bytes on {name}: {why}")
            return
        try:
            message = deserialize_message(payload, kind)
        except (ValueError, RuntimeError) as error:  # ours, rclpy's
            refused.add(topic, f"{len(payload)} bytes on {name}: {error}")
            return
        try:
            callback(message)
        except MessageError as error:
            refused.add(topic, str(error))

    qos.create_subscription(kind, topic, take, profile, raw=True)
