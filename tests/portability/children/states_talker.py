"""A process that publishes joint states at 50 Hz; tests/portability/test_deaf_readers.py starts it.

It prints "ready", and does what the lines on its standard input say: `prompt TEXT` publishes a text that is kept for
late subscribers, `ask` calls the service `again` and prints whether an answer came. It ends with its input.
"""

from __future__ import annotations

import select
import sys
import time

from auras_ros import ros
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.ros.msg import JointState, String
from auras_ros.ros.srv import Trigger

PERIOD_S = 0.02
PATIENCE_S = 10.0


def main() -> None:
    ros.init(args=[])
    node = ros.Node("talker")
    executor = ros.SingleThreadedExecutor()
    executor.add_node(node)
    states = node.create_publisher(JointState, "joint_states", ros.QoSProfile(depth=10))
    prompts = node.create_publisher(String, "prompt", LATCHED)
    client = node.create_client(Trigger, "again")
    steady = ros.Clock(clock_type=ros.ClockType.STEADY_TIME)
    node.create_timer(PERIOD_S, lambda: states.publish(JointState(name=["a"], position=[1.0])), clock=steady)
    print("ready", flush=True)
    while True:
        executor.spin_once(timeout_sec=PERIOD_S)
        if not select.select([sys.stdin], [], [], 0)[0]:
            continue
        line = sys.stdin.readline().strip()
        if not line:
            return
        word, _, text = line.partition(" ")
        if word == "prompt":
            prompts.publish(String(data=text))
            continue
        future = client.call_async(Trigger.Request())
        end_s = time.monotonic() + PATIENCE_S
        while not future.done() and time.monotonic() < end_s:
            executor.spin_once(timeout_sec=PERIOD_S)
        print("answered" if future.done() else "no answer", flush=True)


if __name__ == "__main__":
    main()
