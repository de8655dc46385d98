"""How long an image takes from a publisher's process to a subscriber's callback, on this machine.

The publisher is a child process that stamps each image with the monotonic clock, which all processes of a host
share. This module measures only; `auras bench ros` writes the JSON.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from auras_ros import ros
from auras_ros.heap import bound_heap
from auras_ros.live.loop import on_loopback
from auras_ros.ros.image import IMAGES, image_message, stamp_ns
from auras_ros.ros.msg import Image

TOPIC = "/auras_bench/image_raw"
WARM_UP_MESSAGES = 30
RATE_HZ = 30.0
_CHILD_EXIT_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 15.0


@contextmanager
def _publisher_process(width: int, height: int, rate_hz: float, domain: int) -> Iterator[BaseProcess]:
    """The child process, always reaped. It also ends by itself when its parent is gone."""
    child = get_context("spawn").Process(target=_publish, args=(width, height, rate_hz, domain, os.getpid()))
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join(_CHILD_EXIT_TIMEOUT_S)


def measure_image_latency(
    messages: int = 300, width: int = 640, height: int = 480, rate_hz: float = RATE_HZ, domain: int | None = None
) -> dict[str, Any]:
    """Latency from publish() in one process to the callback in this one, warm-up excluded.

    Returns image_latency_ms_p50, _p99, _max, messages (received), lost (gaps in the numbering), width, height,
    rate_hz and discovery. Raises RuntimeError if the publisher dies, TimeoutError if too few images arrive.
    """
    chosen = int(os.environ.get("ROS_DOMAIN_ID", "0") or "0") if domain is None else domain
    latencies_ms: list[float] = []
    numbers: list[int] = []

    def on_image(message: Any) -> None:
        received_ns = time.monotonic_ns()
        number = int(message.header.frame_id)
        if number >= WARM_UP_MESSAGES and len(numbers) < messages:
            latencies_ms.append((received_ns - stamp_ns(message)) / 1e6)
            numbers.append(number)

    bound_heap()  # as every node does
    with on_loopback() as discovery:
        _receive(messages, rate_hz, on_image, numbers, (width, height, chosen))
    p50, p99 = np.percentile(latencies_ms, [50, 99])
    return {
        "image_latency_ms_p50": float(p50),
        "image_latency_ms_p99": float(p99),
        "image_latency_ms_max": max(latencies_ms),
        "messages": len(latencies_ms),
        "lost": numbers[-1] - numbers[0] + 1 - len(numbers),
        "width": width,
        "height": height,
        "rate_hz": rate_hz,
        "discovery": discovery,
    }


def _receive(
    messages: int, rate_hz: float, on_image: Callable[[Any], None], numbers: list[int], source: tuple[int, int, int]
) -> None:
    """Spin until `messages` images have arrived; source is the child's width, height and domain."""
    width, height, domain = source
    context = ros.Context()
    ros.init(args=[], context=context, domain_id=domain)
    try:
        node = ros.Node("auras_bench_image_sink", context=context, use_global_arguments=False)
        node.create_subscription(Image, TOPIC, on_image, IMAGES)
        executor = ros.SingleThreadedExecutor(context=context)
        executor.add_node(node)
        deadline = time.monotonic() + _CONNECT_TIMEOUT_S + 2 * (messages + WARM_UP_MESSAGES) / rate_hz
        with _publisher_process(width, height, rate_hz, domain) as child:
            while len(numbers) < messages:
                executor.spin_once(timeout_sec=0.5)
                if child.exitcode is not None:
                    raise RuntimeError(f"the publisher process ended with code {child.exitcode}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(numbers)} of {messages} images arrived in time")
        node.destroy_node()
    finally:
        ros.try_shutdown(context=context)


def _publish(width: int, height: int, rate_hz: float, domain: int, parent: int) -> None:
    """The child: publish numbered images at a fixed rate until the parent is gone."""
    bound_heap()
    ros.init(args=[], domain_id=domain)
    node = ros.Node("auras_bench_image_source")
    publisher = node.create_publisher(Image, TOPIC, IMAGES)
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    number = 0

    def tick() -> None:
        nonlocal number
        if os.getppid() != parent:
            ros.try_shutdown()
        elif publisher.get_subscription_count() > 0:
            message = image_message(pixels, stamp_ns=0, frame_id=str(number), encoding="rgb8")
            now_ns = time.monotonic_ns()
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(now_ns, 10**9)
            publisher.publish(message)
            number += 1

    node.create_timer(1.0 / rate_hz, tick, clock=ros.Clock(clock_type=ros.ClockType.STEADY_TIME))
    try:
        ros.spin(node)
    except (KeyboardInterrupt, ros.ExternalShutdownException):
        pass
    finally:
        ros.try_shutdown()
