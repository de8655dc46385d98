"""Two processes on loopback: both ways, services, a late joiner, images, a killed publisher, signals, the bench."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from auras_ros import ros
from auras_ros.bench.ros_image import measure_image_latency
from auras_ros.ros.image import image_message
from auras_ros.ros.msg import Float64MultiArray, Image, String
from auras_ros.ros.srv import SetBool

SpinUntil = Callable[[Callable[[], Any]], None]
LATCHED = ros.QoSProfile(depth=1, durability=ros.DurabilityPolicy.TRANSIENT_LOCAL)
WATCHED = ros.QoSProfile(
    depth=1,
    deadline=ros.Duration(nanoseconds=100_000_000),
    liveliness=ros.LivelinessPolicy.AUTOMATIC,
    liveliness_lease_duration=ros.Duration(seconds=2),
)


def test_topics_services_latched_and_images(node: ros.Node, executor: Any, spawn: Any, spin_until: SpinUntil) -> None:
    """One child for all of it: starting one takes longer than the checks."""
    spawn("peer")
    pongs: list[str] = []
    latched: list[str] = []
    images: list[Any] = []
    node.create_subscription(String, "pong", lambda m: pongs.append(m.data), 10)
    node.create_subscription(String, "latched", lambda m: latched.append(m.data), LATCHED)
    node.create_subscription(Image, "image_back", images.append, 1)
    ping = node.create_publisher(String, "ping", 10)
    image = node.create_publisher(Image, "image", 1)
    client = node.create_client(SetBool, "peer/set")

    spin_until(lambda: latched)
    assert latched == ["the last one"]

    spin_until(lambda: ping.get_subscription_count() and node.count_subscribers("pong"))
    spin_until(lambda: [i.node_name for i in node.get_publishers_info_by_topic("pong")] == ["peer"])
    for number in range(5):
        ping.publish(String(data=f"é{number}"))
    spin_until(lambda: len(pongs) == 5)
    assert pongs == [f"É{number}" for number in range(5)]

    assert client.wait_for_service(timeout_sec=20)
    for flag in (True, False, True):
        future = client.call_async(SetBool.Request(data=flag))
        executor.spin_until_future_complete(future, timeout_sec=20)
        assert (future.result().success, future.result().message) == (flag, "from the peer")

    pixels = np.random.default_rng(2).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    spin_until(image.get_subscription_count)
    image.publish(image_message(pixels, stamp_ns=1_500_000_007, frame_id="cam", encoding="rgb8"))
    spin_until(lambda: images)
    [back] = images
    assert not back.data.flags.owndata
    np.testing.assert_array_equal(back.data.reshape(480, 640, 3), pixels)
    assert (back.header.stamp.sec, back.header.stamp.nanosec, back.header.frame_id) == (1, 500_000_007, "cam")
    assert (back.encoding, back.step, back.height, back.width) == ("rgb8", 1920, 480, 640)


def test_a_killed_publisher_is_noticed(node: ros.Node, spawn: Any, spin_until: SpinUntil) -> None:
    """Deadline and liveliness both fire in the receiving process after SIGKILL. The lease ends long after the deadline:
    of a writer that is not alive nothing is late."""
    child = spawn("peer")
    beats: list[float] = []
    missed: list[int] = []
    alive: list[tuple[int, int]] = []
    callbacks = ros.SubscriptionEventCallbacks(
        deadline=lambda info: missed.append(info.total_count_change),
        liveliness=lambda info: alive.append((info.alive_count, info.not_alive_count_change)),
    )
    node.create_subscription(
        Float64MultiArray, "beat", lambda m: beats.append(m.data[0]), WATCHED, event_callbacks=callbacks
    )
    spin_until(lambda: len(beats) > 3 and alive and alive[-1][0] == 1)
    missed.clear()
    child.send_signal(signal.SIGKILL)
    spin_until(lambda: missed and alive[-1][0] == 0)
    assert sum(missed) >= 1


def test_a_missed_offer_and_a_lost_manual_liveliness_are_reported(node: ros.Node, spin_until: SpinUntil) -> None:
    """The publisher's own side: it promised a message every 50 ms and a sign of life every 100 ms."""
    missed: list[int] = []
    lost: list[int] = []
    profile = ros.QoSProfile(
        depth=1,
        deadline=ros.Duration(nanoseconds=50_000_000),
        liveliness=ros.LivelinessPolicy.MANUAL_BY_TOPIC,
        liveliness_lease_duration=ros.Duration(nanoseconds=100_000_000),
    )
    callbacks = ros.PublisherEventCallbacks(
        deadline=lambda info: missed.append(info.total_count), liveliness=lambda info: lost.append(info.total_count)
    )
    publisher = node.create_publisher(String, "promise", profile, event_callbacks=callbacks)
    publisher.publish(String())
    spin_until(lambda: missed and lost)
    before = lost[-1]
    publisher.publish(String())
    spin_until(lambda: lost[-1] > before)


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "ExternalShutdownException")]
)
def test_signals_end_spin_as_in_rclpy(spawn: Any, number: signal.Signals, expected: str) -> None:
    child = spawn("spinner")
    child.send_signal(number)
    output, errors = child.communicate(timeout=20)
    how, *rest = output.splitlines()
    # Between two waits a SIGTERM ends spin's loop instead: it returns, in rclpy too.
    assert how == expected or (how == "returned" and number == signal.SIGTERM)
    assert rest == ["not ok", "['MainThread']"]
    assert child.returncode == 0
    assert errors == ""


def test_a_signal_before_spin_is_not_lost(spawn: Any) -> None:
    output, errors = spawn("spinner", "early").communicate(timeout=20)
    assert (output.splitlines()[0], errors) == ("ExternalShutdownException", "")


def test_image_latency_is_measured(domain: int) -> None:
    """Plausibility alone; the figure itself belongs to the bench."""
    result = measure_image_latency(messages=5, width=64, height=48, rate_hz=100, domain=domain)
    assert result["messages"] == 5
    assert 0 < result["image_latency_ms_p50"] <= result["image_latency_ms_p99"] <= result["image_latency_ms_max"]
