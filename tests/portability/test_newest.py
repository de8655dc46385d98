"""A node that was busy acts on the newest image, though its reader keeps five: on whatever backend this run speaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros import ros
from auras_ros.action import Contract
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.input_settings import StampRule
from auras_ros.nodes.common.qos import IMAGES
from auras_ros.nodes.vlm.cameras import CameraInputs
from auras_ros.observation import ObservationSpec
from auras_ros.ros.image import image_message
from auras_ros.ros.msg import Image
from tests.conftest import held_domain
from tests.nodes.controllers import channel

DOMAINS = range(40, 50)
WAITING = 5
PATIENCE_S = 20.0


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[ros.Node]:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with held_domain(DOMAINS) as domain:
        context = ros.Context()
        ros.init(args=[], context=context, domain_id=domain)
        own = ros.Node("busy", context=context)
        yield own
        own.destroy_node()
        ros.try_shutdown(context=context)


@pytest.fixture
def executor(node: ros.Node) -> Iterator[ros.SingleThreadedExecutor]:
    spinning = ros.SingleThreadedExecutor(context=node.context)
    spinning.add_node(node)
    yield spinning
    spinning.shutdown()


def publish_images(node: ros.Node, topic: str, subscription_count: int = 1) -> None:
    """Numbered images, one after another, while nobody spins. Within one process a reader has them when `publish`
    returns."""
    publisher = node.create_publisher(Image, topic, IMAGES)
    assert publisher.get_subscription_count() == subscription_count
    for number in range(WAITING):
        pixels = np.full((8, 8, 3), number, np.uint8)
        stamp_ns = node.get_clock().now().nanoseconds
        publisher.publish(image_message(pixels, stamp_ns=stamp_ns, frame_id=str(number), encoding="rgb8"))


def number_of(message: Any) -> int:
    return int(message.header.frame_id)


def test_a_reader_keeps_five_and_the_newest_alone_is_passed_on(
    node: ros.Node, executor: ros.SingleThreadedExecutor
) -> None:
    qos = QosWatch(node, lambda: None)
    newest: list[int] = []
    every: list[int] = []
    qos.create_subscription(Image, "images", lambda message: newest.append(number_of(message)), IMAGES, newest=True)
    qos.create_subscription(Image, "images", lambda message: every.append(number_of(message)), IMAGES)
    publish_images(node, "images", subscription_count=2)
    while len(every) < WAITING:
        executor.spin_once(timeout_sec=PATIENCE_S)
    executor.spin_once(timeout_sec=0)
    assert every == list(range(WAITING))
    assert newest == [WAITING - 1]


def test_messages_that_come_one_by_one_are_all_passed_on(node: ros.Node, executor: ros.SingleThreadedExecutor) -> None:
    newest: list[int] = []
    QosWatch(node, lambda: None).create_subscription(
        Image, "images", lambda message: newest.append(number_of(message)), IMAGES, newest=True
    )
    publisher = node.create_publisher(Image, "images", IMAGES)
    for number in range(WAITING):
        publisher.publish(
            image_message(np.zeros((8, 8, 3), np.uint8), stamp_ns=0, frame_id=str(number), encoding="rgb8")
        )
        while len(newest) <= number:
            executor.spin_once(timeout_sec=PATIENCE_S)
    assert newest == list(range(WAITING))


def test_raw_payloads_too(node: ros.Node, executor: ros.SingleThreadedExecutor) -> None:
    newest: list[int] = []

    def take(payload: Any) -> None:
        newest.append(number_of(ros.deserialize_message(bytes(payload), Image)))

    QosWatch(node, lambda: None).create_subscription(Image, "images", take, IMAGES, raw=True, newest=True)
    publish_images(node, "images")
    while not newest:
        executor.spin_once(timeout_sec=PATIENCE_S)
    assert newest == [WAITING - 1]


def test_garbage_that_waits_does_not_hide_the_image_before_it(
    node: ros.Node, executor: ros.SingleThreadedExecutor
) -> None:
    newest: list[int] = []
    QosWatch(node, lambda: None).create_subscription(
        Image, "images", lambda message: newest.append(number_of(message)), IMAGES, newest=True
    )
    publisher = node.create_publisher(Image, "images", IMAGES)
    image = image_message(np.zeros((8, 8, 3), np.uint8), stamp_ns=0, frame_id="7", encoding="rgb8")
    publisher.publish(image)
    publisher.publish(b"\x00\x01\x00\x00garbage")
    while not newest:
        executor.spin_once(timeout_sec=PATIENCE_S)
    assert newest == [7]


def test_a_vlm_node_that_was_busy_sees_the_newest_image_alone(
    node: ros.Node, executor: ros.SingleThreadedExecutor
) -> None:
    settings: Any = SimpleNamespace(
        compressed=False, camera_age_limit_ms=60_000.0, stamp_ahead_ms=1000.0, camera_names=lambda: ["top"],
        kept=lambda: 4, topics_of_cameras=dict, stamp_rule=StampRule,
    )  # fmt: skip
    cameras = CameraInputs(node, settings, QosWatch(node, lambda: None))
    told: list[str] = []
    cameras.open(told.append)
    publish_images(node, "camera/top/image_raw")
    while not told:
        executor.spin_once(timeout_sec=PATIENCE_S)
    executor.spin_once(timeout_sec=0)
    assert told == ["top"]
    assert cameras.newest("top").item().max() == WAITING - 1
    cameras.close()


def test_an_agent_that_was_busy_takes_the_newest_image_alone(
    node: ros.Node, executor: ros.SingleThreadedExecutor
) -> None:
    spec = ObservationSpec.from_dict(
        {"cameras": [{"name": "top", "height": 8, "width": 8}], "state": None, "history": 1, "dt_ms": 100}
    )
    contract = Contract.from_dict({"dt_ms": 100.0, "channels": [channel("x")]})
    inputs = ObservationInputs(node, spec, AgentSettings(), QosWatch(node, lambda: None), contract)
    news = threading.Event()
    inputs.open(news.set, lambda: None)
    publish_images(node, "camera/top/image_raw")
    deadline = time.monotonic() + PATIENCE_S
    while not news.is_set() and time.monotonic() < deadline:
        executor.spin_once(timeout_sec=0.1)
    executor.spin_once(timeout_sec=0)
    assert inputs.check().values["top received"] == 1
    inputs.close()
