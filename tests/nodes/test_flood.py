"""Garbage fills nobody's log: at most a line a second for each topic, whatever the middleware prints by itself."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable

from auras_ros.ros import qos_profile_sensor_data
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from tests.nodes.wire import RELIABLE, Child, Children, Watch

HEADER = b"\0\1\0\0"
STAMP_AND_FRAME = struct.pack("<iII", 1, 2, 1) + bytes(4)
MANY = 2**30
# A sequence or a text that is longer than the payload, and bytes that mean nothing.
GARBAGE = {
    "agent/chunk": [HEADER + struct.pack("<II", 0, 0) + struct.pack("<I", MANY) + bytes(64), HEADER + b"\xff" * 64],
    "agent/heartbeat": [HEADER + struct.pack("<I", MANY) + bytes(64), HEADER + b"\xff" * 3],
    "joint_states": [HEADER + STAMP_AND_FRAME + struct.pack("<I", MANY) + bytes(64), HEADER + b"\7" * 300],
}
ROUNDS = 100
TYPED = """
import sys, time
from auras_ros.ros import QoSProfile, create_node, init, try_shutdown
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.msg import Float64MultiArray, JointState, String

init(args=[])
node, other = create_node("typed"), create_node("other")
publishers = []
for kind in (String, JointState):
    node.create_subscription(kind, kind.__name__, lambda message: None, QoSProfile(depth=10))
    publishers.append(other.create_publisher(kind, kind.__name__, QoSProfile(depth=10)))
callbacks = Callbacks(node)
while not all(publisher.get_subscription_count() for publisher in publishers):
    callbacks.spin_once()
for _ in range(100):
    for publisher in publishers:
        publisher.publish(b"\\0\\1\\0\\0" + b"\\xff" * 64)
        callbacks.spin_once()
callbacks.close()
try_shutdown()
print("came to its end")
"""
LINES = 20  # of the start, and warnings of the middleware


def test_garbage_on_every_topic_of_the_actuator_is_counted_and_said_once_a_second(
    actuator: Callable[..., Child], watch: Watch
) -> None:
    child = actuator()
    publishers = {
        "agent/chunk": watch.node.create_publisher(Float64MultiArray, "agent/chunk", RELIABLE),
        "agent/heartbeat": watch.node.create_publisher(String, "agent/heartbeat", RELIABLE),
        "joint_states": watch.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data),
    }
    watch.until(
        lambda: watch.states and all(each.get_subscription_count() for each in publishers.values()), "the actuator"
    )
    lines = child.output.count("\n")
    began_s = time.monotonic()
    for _ in range(ROUNDS):
        for topic, publisher in publishers.items():
            for payload in GARBAGE[topic]:
                publisher.publish(payload)
        now_ns = time.monotonic_ns()
        watch.state_where(lambda state, now_ns=now_ns: state["mono_ns"] > now_ns, "its executor goes on")
    watch.until(lambda: watch.states[-1]["unreadable"] >= 3 * ROUNDS, "most of them are counted")
    seconds = time.monotonic() - began_s
    assert child.output.count("\n") - lines <= len(publishers) * (seconds + 2)
    for topic in publishers:
        assert f"bytes on /{topic}: " in child.output


def test_garbage_on_typed_topics_is_no_flood_of_the_middlewares_own_lines(children: Children) -> None:
    """As on /clock, which rclpy reads itself."""
    child = children(sys.executable, "-c", TYPED)
    assert child.wait() == 0
    assert "came to its end" in child.output
    assert child.output.count("\n") < LINES, child.output[:3000]
