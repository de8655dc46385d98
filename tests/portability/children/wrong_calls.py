"""Calls that rclpy would not take, made on its double: prints each one's name and what the double said.

An empty text means that the double took it.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable

import numpy as np
import rclpy
import rclpy_recording
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.clock import Clock, JumpThreshold
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import Float64MultiArray, String
from std_srvs.srv import Trigger

rclpy.init(args=[])
node = Node("plain")
publisher = node.create_publisher(String, "said", 10)
numbers = Float64MultiArray()


def set_numbers(value: object) -> None:
    numbers.data = value


def two_severities() -> None:
    for log in (node.get_logger().info, node.get_logger().warning):
        log("from one line")


def own_name() -> None:
    class Clashing(Node):
        def __init__(self) -> None:
            super().__init__("clashing")
            self._timers = 3

    Clashing()


def own_method() -> None:
    class Clashing(Node):
        def _logger(self) -> None:
            pass


def published_at_the_end() -> None:
    context = rclpy.Context()
    rclpy.init(args=[], context=context)
    late = Node("late", context=context).create_publisher(String, "late", 10)
    context.shutdown()
    late.publish(String())


def jump_handle_let_go() -> None:
    threshold = JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1))
    node.get_clock().create_jump_callback(threshold, post_callback=print)
    gc.collect()
    raise AssertionError(rclpy_recording.refused[-1])


WRONG: dict[str, Callable[[], object]] = {
    "unknown keyword": lambda: node.create_publisher(String, "a", 10, reliability="best"),
    "keyword given by position": lambda: node.create_subscription(String, "a", print, 10, None),
    "no qos": lambda: node.create_publisher(String, "a"),
    "qos as text": lambda: node.create_publisher(String, "a", "reliable"),
    "qos as a policy of none": lambda: node.create_subscription(String, "a", print, None),
    "callback that is none": lambda: node.create_subscription(String, "a", "print", 10),
    "unknown method": lambda: node.create_wall_timer(0.1, print),
    "C++ name of a policy": lambda: QoSProfile(depth=1, best_effort=True),
    "duration as a number": lambda: QoSProfile(depth=1, deadline=0.5),
    "reliability as text": lambda: QoSProfile(depth=1, reliability="reliable"),
    "profile without depth": lambda: QoSProfile(reliability=ReliabilityPolicy.RELIABLE),
    "duration by position": lambda: Duration(1),
    "clock type by position": lambda: Clock(3),
    "message class as type of a service": lambda: node.create_service(String, "a", print),
    "service class as type of a topic": lambda: node.create_publisher(Trigger, "a", 10),
    "message of another type": lambda: publisher.publish(Float64MultiArray()),
    "instance as type": lambda: node.create_publisher(String(), "a", 10),
    "unknown event": lambda: SubscriptionEventCallbacks(missed=print),
    "timer's period as text": lambda: node.create_timer("1", print),
    "parameter as a bare value": lambda: node.set_parameters([3]),
    "descriptor as text": lambda: node.declare_parameter("a", 1, "an integer"),
    "undeclared parameter": lambda: node.get_parameter("nobody"),
    "value of another type": lambda: Parameter("a", Parameter.Type.INTEGER, 1.5),
    "logging option": lambda: node.get_logger().info("a", throttle_sec=1.0),
    "two severities on a line": two_severities,
    "an attribute of rclpy's own": own_name,
    "a method under a name of rclpy's own": own_method,
    "topic name with a space": lambda: node.create_publisher(String, "a b", 10),
    "executor's timeout by another name": lambda: SingleThreadedExecutor().spin_once(timeout=1.0),
    "unknown field": lambda: String(text="a"),
    "unknown attribute of a message": lambda: setattr(String(), "text", "a"),
    "number in a text field": lambda: String(data=3),
    "int in a float sequence": lambda: set_numbers([1, 2]),
    "ndarray in a float sequence": lambda: set_numbers(np.zeros(2)),
    "level as a number": lambda: DiagnosticStatus(level=1),
    "numpy integer": lambda: Image(height=np.int64(3)),
    "negative unsigned": lambda: Image(height=-1),
    "list in a sub message": lambda: Image(header=[1, 2]),
    "publishing after shutdown": published_at_the_end,
    "a jump handle let go of": jump_handle_let_go,
    "a package that does not exist": lambda: __import__("fantasy_msgs.msg"),
}


def said(wrong: Callable[[], object]) -> str:
    try:
        wrong()
    except Exception as error:  # noqa: BLE001  (reported)
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    print(json.dumps({name: said(wrong) for name, wrong in WRONG.items()}))
