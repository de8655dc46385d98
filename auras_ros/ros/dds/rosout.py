"""A node's log lines on /rosout: transient local, kept for ten seconds, published in the thread that logs.

A line that can no longer be published is on stderr already; logging never raises because of it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from . import logger as logging
from .clock import Time
from .library import DdsError
from .messages import message_type
from .qos import QoSProfile

if TYPE_CHECKING:
    from .node import Node

TOPIC = "/rosout"


class Rosout:
    """Publishes the lines of the node's logger and its children, until `close`."""

    def __init__(self, node: Node, profile: QoSProfile) -> None:
        self._log = message_type("rcl_interfaces/msg/Log")
        self._publisher = node.create_publisher(self._log, TOPIC, profile)
        self._name = node.get_logger().name
        self._sink = self._send  # one bound method object, so that remove_sink finds it
        logging.add_sink(self._name, self._sink)

    def _send(self, record: logging.LogRecord) -> None:
        message = self._log(
            stamp=Time(nanoseconds=record.stamp_ns).to_msg(), level=int(record.severity), name=record.name,
            msg=_sendable(record.text), file=_sendable(record.file), function=record.function, line=record.line,
        )  # fmt: skip
        with suppress(DdsError):  # the context ended between the line and its message
            self._publisher.publish(message)

    def close(self) -> None:
        logging.remove_sink(self._name, self._sink)


def _sendable(text: str) -> str:
    """The text, without what UTF-8 cannot encode: file names, or strings from outside, may contain such characters."""
    return text.encode("utf-8", "replace").decode("utf-8")
