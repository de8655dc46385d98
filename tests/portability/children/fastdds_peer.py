"""A process that sends or receives numbered images; tests/portability/test_fastdds.py starts it and reads its lines.

    fastdds_peer.py {writer|reader|node} {ours|default} [images] [width] [height] [images a second]

ours: through auras_ros.ros. default: rclpy as a driver starts it, with no profile of ours. It prints one JSON object a
line, waits for a line before it goes on, and ends at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from auras_ros import ros
from auras_ros.heap import bound_heap
from auras_ros.ros.image import IMAGES, image_message, stamp_ns
from auras_ros.ros.msg import Image
from tests.ros.sockets import local_addresses

TOPIC = "/fastdds_peer/image_raw"
PATIENCE_S = 30.0
QUIET_S = 2.0  # after the last image nothing more is expected


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def lock_files() -> list[str]:
    """The segments that this process holds, by their lock files."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue  # closed since
    return sorted(Path(target).name for target in targets if target.startswith("/dev/shm/") and target.endswith("_el"))


def describe() -> None:
    say(
        sockets=[[address, port] for address, port, _ in local_addresses()],
        locks=lock_files(),
        discovery_range=os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", ""),
    )


def spin_until(executor: ros.SingleThreadedExecutor, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        executor.spin_once(timeout_sec=0.02)


def write(
    node: ros.Node, executor: ros.SingleThreadedExecutor, count: int, width: int, height: int, rate_hz: float
) -> None:
    publisher = node.create_publisher(Image, TOPIC, IMAGES)
    describe()
    spin_until(executor, lambda: publisher.get_subscription_count() > 0)
    say(matched=publisher.get_subscription_count())
    sys.stdin.readline()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    next_s = time.monotonic()
    for number in range(count):
        message = image_message(pixels, stamp_ns=0, frame_id=str(number), encoding="rgb8")
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(time.monotonic_ns(), 10**9)
        publisher.publish(message)
        next_s += 1 / rate_hz
        time.sleep(max(0.0, next_s - time.monotonic()))
    say(sent=count)


def read(node: ros.Node, executor: ros.SingleThreadedExecutor, count: int, rate_hz: float) -> None:
    latencies_ms: list[float] = []
    numbers: list[int] = []

    def take(message: Any) -> None:
        latencies_ms.append((time.monotonic_ns() - stamp_ns(message)) / 1e6)
        numbers.append(int(message.header.frame_id))

    node.create_subscription(Image, TOPIC, take, IMAGES)
    describe()
    spin_until(executor, lambda: node.count_publishers(TOPIC) > 0)
    say(matched=node.count_publishers(TOPIC))
    deadline = time.monotonic() + PATIENCE_S + count / rate_hz
    newest_s = deadline
    while time.monotonic() < min(deadline, newest_s + QUIET_S) and (not numbers or numbers[-1] < count - 1):
        before = len(numbers)
        executor.spin_once(timeout_sec=0.2)
        if len(numbers) > before:
            newest_s = time.monotonic()
    p50, p99 = np.percentile(latencies_ms, [50, 99]).tolist() if latencies_ms else (0.0, 0.0)
    say(received=len(numbers), p50_ms=p50, p99_ms=p99)


def main(role: str, kind: str, count: str = "20", width: str = "640", height: str = "480", rate: str = "30") -> None:
    if kind == "default":
        import rclpy

        rclpy.init(args=[])
    else:
        bound_heap()  # as every node does
        ros.init(args=[])
    node = ros.Node(f"fastdds_{role}")
    executor = ros.SingleThreadedExecutor()
    executor.add_node(node)
    if role == "writer":
        write(node, executor, int(count), int(width), int(height), float(rate))
    elif role == "reader":
        read(node, executor, int(count), float(rate))
    else:
        describe()
    sys.stdin.read()
    executor.shutdown()
    node.destroy_node()
    ros.try_shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
