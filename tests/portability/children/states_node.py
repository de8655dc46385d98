"""A node that hears joint states, run as ours are; tests/portability/test_deaf_readers.py starts it. It prints "heard"
once."""

from __future__ import annotations

import sys
from typing import Any

from auras_ros import ros
from auras_ros.ros.msg import JointState
from auras_ros.ros.process import run_node


class StatesNode(ros.Node):  # type: ignore[misc]  # rclpy has no types
    def __init__(self) -> None:
        super().__init__("states_node")
        self._heard = False
        self.create_subscription(JointState, "joint_states", self._on_states, ros.QoSProfile(depth=10))

    def _on_states(self, message: Any) -> None:
        if not self._heard:
            self._heard = True
            print("heard", flush=True)

    def start(self) -> None: ...

    def working(self) -> bool:
        return True

    def halt(self) -> None: ...


if __name__ == "__main__":
    sys.exit(run_node(lambda _: StatesNode(), (), argv=[]))
