"""Publishers and subscriptions: a topic, a message type, a writer or reader, and its events.

A payload that is not a message of the topic's type is ignored, counted and logged where a line is due; it never reaches
the callback and never stops the executor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auras_ros.repeated_lines import RepeatedLines

from . import names
from .cdr import CdrError
from .clock import Duration
from .endpoint import Reader, Received, Writer
from .events import EventHandler, PublisherEventCallbacks, SubscriptionEventCallbacks
from .library import TIMED_OUT, assert_liveliness, check, wait_for_acks
from .logger import RcutilsLogger
from .messages import Message, deserialize, serialize
from .participant import Participant
from .qos import QoSProfile


def ros_type_of(msg_type: Any) -> str:
    """'package/msg/Name' of a message class. Raises TypeError for anything else."""
    if not (isinstance(msg_type, type) and issubclass(msg_type, Message)):
        raise TypeError(f"{msg_type!r} is not a message class of auras_ros.ros.msg")
    return msg_type._ros_type


@dataclass(frozen=True)
class Owner:
    """What a node's entities need from it."""

    participant: Participant
    logger: RcutilsLogger


class Receiver:
    """Takes one payload each time the executor runs it. An unreadable one is counted, logged and ignored.

    Subclasses decode it (CdrError: not a valid payload) and handle the result, in the executor's thread.
    """

    def __init__(self, owner: Owner, reader: Reader, name: str) -> None:
        self._reader, self._name = reader, name
        self._logger = owner.logger
        self._lines = RepeatedLines()
        self.entity = reader.condition
        self.ignored_count = 0

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def execute(self) -> None:
        """Take one payload and handle it; an exception of a user's callback propagates."""
        received = self._reader.take()
        if received is None:
            return
        try:
            content = self._read(received.payload)
        except CdrError as error:
            self.ignored_count += 1
            size = received.payload.nbytes
            text = f"ignored a payload of {size} bytes on {self._name}: {error} ({self.ignored_count} so far)"
            if line := self._lines.line(self._name, text, cause="ignored"):
                self._logger.warning(line)
        else:
            self._handle(content, received)

    def _read(self, payload: memoryview) -> Any:
        raise NotImplementedError

    def _handle(self, content: Any, received: Received) -> None:
        raise NotImplementedError


class Publisher:
    """Publishes messages of one type; `publish` may be called from any thread."""

    def __init__(
        self, owner: Owner, msg_type: Any, topic: str, qos: QoSProfile, callbacks: PublisherEventCallbacks
    ) -> None:
        self.msg_type, self.topic_name, self.qos_profile = msg_type, topic, qos
        self.endpoint = Writer(owner.participant, names.dds_topic(topic), ros_type_of(msg_type), qos)
        self.events = EventHandler(self.endpoint, callbacks, owner.logger)

    @property
    def topic(self) -> str:
        return self.topic_name

    def publish(self, msg: Any) -> None:
        """Send one message, or bytes unchanged: a serialised message, valid or not.

        Raises TypeError for another type, DdsError (a RuntimeError) after shutdown or if libddsc refuses the payload.
        """
        if isinstance(msg, bytes):
            self.endpoint.write([msg])
            return
        if type(msg) is not self.msg_type:
            wanted = self.msg_type._ros_type
            raise TypeError(f"publish on {self.topic_name}: expected {wanted}, got {type(msg).__name__}")
        self.endpoint.write(serialize(msg))

    def get_subscription_count(self) -> int:
        """How many subscriptions this publisher reaches now."""
        return self.endpoint.matched_count()

    def wait_for_all_acked(self, timeout: Duration) -> bool:
        """Whether every reliable subscription has acknowledged what was published, within this time."""
        code = wait_for_acks(self.endpoint.ref, timeout.nanoseconds)
        return code != TIMED_OUT and check(code, f"acknowledgements of {self.topic_name}") >= 0

    def assert_liveliness(self) -> None:
        """Signal that the publisher is alive, if its liveliness is MANUAL_BY_TOPIC."""
        check(assert_liveliness(self.endpoint.ref), f"liveliness of {self.topic_name}")

    def close(self) -> None:
        self.endpoint.close()


def wants_info(callback: Callable[..., object]) -> bool:
    """Whether a callback takes (message, info), found as in rclpy. Raises TypeError if it takes neither form."""
    signature = inspect.signature(callback)
    for count in (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    raise TypeError(f"subscription callback {callback!r}: takes neither (message) nor (message, info)")


class Subscription(Receiver):
    """Calls `callback(message)` or `callback(message, info)`, with one message each time the executor runs it.

    raw: the callback gets the payload as received, bytes-like and read-only. info: `source_timestamp` (ns) as in
    rclpy, and `publisher_gid` (16 bytes) if the publisher is still known.
    """

    def __init__(
        self, owner: Owner, msg_type: Any, topic: str, callback: Callable[..., object], qos: QoSProfile,
        callbacks: SubscriptionEventCallbacks, raw: bool = False,
    ) -> None:  # fmt: skip
        self.msg_type, self.topic_name, self.qos_profile, self.callback = msg_type, topic, qos, callback
        self.raw, self._wants_info = raw, wants_info(callback)
        self._ros_type = ros_type_of(msg_type)
        self.endpoint = Reader(owner.participant, names.dds_topic(topic), self._ros_type, qos)
        self.events = EventHandler(self.endpoint, callbacks, owner.logger)
        super().__init__(owner, self.endpoint, topic)

    def _read(self, payload: memoryview) -> Any:
        return payload if self.raw else deserialize(payload, self._ros_type)

    def _handle(self, content: Any, received: Received) -> None:
        if self._wants_info:
            self.callback(content, self._info(received))
        else:
            self.callback(content)

    def _info(self, received: Received) -> dict[str, Any]:
        info: dict[str, Any] = {"source_timestamp": received.source_stamp_ns}
        gid = self.endpoint.writer_gid(received.publication_handle)
        return info | {"publisher_gid": gid} if gid else info

    def take(self) -> Any:
        """The next message that waits, or None, without calling the callback. Raises CdrError, a ValueError, for one
        that cannot be read."""
        received = self._reader.take()
        return None if received is None else self._read(received.payload)

    def get_publisher_count(self) -> int:
        """How many publishers reach this subscription now."""
        return self.endpoint.matched_count()

    def close(self) -> None:
        self.endpoint.close()
