"""A node's log lines on /rosout: transient local, kept for ten seconds, published in the thread that logs.

A line that cannot be published any more is on stderr already; logging never raises because of it.
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
    """Sends what the node's logger and its children print, until `close`."""

    def __init__(self, node: Node, profile: QoSProfile) -> None:
        self._log = message_type("rcl_interfaces/msg/Log")
        self._publisher = node.create_publisher(self._log, TOPIC, profile)
        self._name = node.get_logger().name
        self._sink = self._send  # one bound method, so that it can be found again
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
    """Text that has a UTF-8 form; a file name from the system, or a foreign string, may have none."""
    return text.encode("utf-8", "replace").decode("utf-8")
