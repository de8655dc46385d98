"""Subscriptions of the nodes to topics that anybody may publish: what is too large, or no message of the topic's type,
is refused before it is converted (`ros.bounded`), and so is what the callback itself refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import IMAGE_LIMITS, image_reader
from auras_ros.nodes.common.qos import IMAGES
from auras_ros.nodes.common.reader_watch import WatchedReader
from auras_ros.nodes.common.texts import MessageError
from auras_ros.ros import QoSProfile
from auras_ros.ros.bounded import PayloadLimits, bounded, bounded_with_info, read_message
from auras_ros.ros.msg import CompressedImage, Image


def subscribe(
    qos: QosWatch,
    kind: Any,
    topic: str,
    callback: Callable[[Any], object],
    profile: QoSProfile,
    limits: PayloadLimits,
    refuse: Callable[[ValueError], object],
    read: Callable[[memoryview | bytes], Any] | None = None,
    newest: bool = False,
    periodic: bool = False,
) -> WatchedReader:
    """The subscription, which calls `callback(message)` for messages within the limits; it may refuse one by a
    MessageError. refuse: called with the reason for each refused message. read: the message in a payload; None: of the
    type `kind`. newest: of messages that wait, only the newest is read. periodic: whether a living publisher that is
    silent is a fault, so that the reader is made again."""

    def call(message: Any) -> None:
        try:
            callback(message)
        except MessageError as error:
            refuse(error)

    take = bounded(_full_name(qos, topic), read or partial(read_message, kind=kind), call, limits, refuse)
    return qos.create_subscription(kind, topic, take, profile, raw=True, newest=newest, periodic=periodic)


def subscribe_with_info(
    qos: QosWatch,
    kind: Any,
    topic: str,
    callback: Callable[[Any, Any], object],
    profile: QoSProfile,
    limits: PayloadLimits,
    refuse: Callable[[ValueError], object],
    periodic: bool = False,
) -> Any:
    """As `subscribe`, but it calls `callback(message, info)`: info is what the middleware says of the message."""

    def call(message: Any, info: Any) -> None:
        try:
            callback(message, info)
        except MessageError as error:
            refuse(error)

    take = bounded_with_info(_full_name(qos, topic), partial(read_message, kind=kind), call, limits, refuse)
    return qos.create_subscription(kind, topic, take, profile, raw=True, with_info=True, periodic=periodic)


def _full_name(qos: QosWatch, topic: str) -> str:
    try:
        return str(qos.node.resolve_topic_name(topic))
    except RuntimeError:  # rclpy's, of a bad name: creating the subscription says what is wrong with it
        return topic


def subscribe_to_camera(
    qos: QosWatch,
    topic: str,
    callback: Callable[[Any], object],
    refuse: Callable[[ValueError], object],
    *,
    compressed: bool,
) -> WatchedReader:
    """The subscription to a camera's images, raw or compressed. Of images that wait, only the newest is read."""
    kind = CompressedImage if compressed else Image
    read = image_reader(compressed=compressed)
    return subscribe(qos, kind, topic, callback, IMAGES, IMAGE_LIMITS, refuse, read=read, newest=True, periodic=True)
