"""Subscriptions to what anybody may publish: the size of a payload is looked at before anything is read of it.

Reading a message keeps the interpreter from the other threads (in rclpy in one call), so the size bounds that time too.
What is too large, or no message of the topic's type, reaches no callback: it is counted, and said in words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auras_ros.ros import Node, QoSProfile, SubscriptionEventCallbacks, deserialize_message
from auras_ros.ros.text import first_count

SAID_EVERY_S = 1.0  # of each topic
SHOWN_CHARS = 300


@dataclass(frozen=True)
class PayloadLimits:
    """What a payload may have: bytes, and elements of the sequence that it begins with (None: it begins with none)."""

    max_bytes: int
    max_first: int | None = None

    def exceeded(self, payload: bytes) -> str:
        """Which bound, empty where it keeps them."""
        if len(payload) > self.max_bytes:
            return f"at most {self.max_bytes}"
        if self.max_first is not None and len(payload) >= 8 and first_count(payload) > self.max_first:
            return f"{first_count(payload)} elements at its beginning, at most {self.max_first}"
        return ""


class RefusedMessages:
    """What was refused on the topics of a node: how much, and the newest in words. Of the executor's thread."""

    def __init__(self, node: Node) -> None:
        self._logger = node.get_logger()
        self._said_s: dict[str, float] = {}
        self.count, self.newest = 0, ""

    def add(self, topic: str, text: str) -> None:
        """Count it; say it where nothing was said of this topic for a second."""
        self.count, self.newest = self.count + 1, text[:SHOWN_CHARS]
        now_s = time.monotonic()
        if now_s - self._said_s.get(topic, -SAID_EVERY_S) >= SAID_EVERY_S:
            self._said_s[topic] = now_s
            self._logger.warning(f"refused: {self.newest}")


def subscribe(
    node: Node,
    kind: Any,
    topic: str,
    callback: Callable[[Any], object],
    profile: QoSProfile,
    bounds: PayloadLimits,
    refused: RefusedMessages,
    events: SubscriptionEventCallbacks,
) -> Any:
    """Call `callback(message)` for messages within the bounds."""
    name = node.resolve_topic_name(topic)

    def take(payload: bytes) -> None:
        if why := bounds.exceeded(payload):
            refused.add(topic, f"{len(payload)} bytes on {name}: {why}")
            return
        try:
            message = deserialize_message(payload, kind)
        except (ValueError, RuntimeError) as error:  # ours, rclpy's
            refused.add(topic, f"{len(payload)} bytes on {name}: {error}")
            return
        callback(message)

    return node.create_subscription(kind, topic, take, profile, raw=True, event_callbacks=events)
