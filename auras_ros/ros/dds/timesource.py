"""Simulated time: while `use_sim_time` is true, a node's clock follows /clock.

It subscribes when the parameter becomes true and unsubscribes when it becomes false. The clock reports jumps itself.
An invalid stamp (negative, or with nanoseconds of a second or more) is ignored: with it, every later stamp of the
node would be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from auras_ros.repeated_lines import RepeatedLines

from .clock import NS_PER_S, Clock
from .messages import message_type
from .parameter import Parameter
from .qos import QoSProfile, ReliabilityPolicy

if TYPE_CHECKING:
    from .node import Node
    from .pubsub import Subscription

PARAMETER = "use_sim_time"
CLOCK_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


class TimeSource:
    """Drives one node's ROS clock."""

    def __init__(self, node: Node, clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._subscription: Subscription | None = None
        self.ignored_count = 0
        self._lines = RepeatedLines()
        declared = node.declare_parameter(PARAMETER, False)
        node.add_on_set_parameters_callback(self._on_set)
        self._switch(bool(declared.value))

    def _on_set(self, parameters: list[Parameter]) -> Any:
        for parameter in parameters:
            if parameter.name == PARAMETER:
                self._switch(bool(parameter.value))
        return message_type("rcl_interfaces/msg/SetParametersResult")(successful=True)

    def _switch(self, on: bool) -> None:
        if on and self._subscription is None:
            self._clock.set_override(0)
            kind = message_type("rosgraph_msgs/msg/Clock")
            self._subscription = self._node.create_subscription(kind, "/clock", self._on_clock, CLOCK_QOS)
        elif not on and self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None
            self._clock.set_override(None)

    def _on_clock(self, message: Any) -> None:
        if message.clock.sec < 0 or message.clock.nanosec >= NS_PER_S:
            self.ignored_count += 1
            text = f"ignored a time on /clock: {message.clock.sec} s and {message.clock.nanosec} ns"
            if line := self._lines.line("/clock", f"{text} ({self.ignored_count} so far)"):
                self._node.get_logger().warning(line)
        elif self._subscription is not None:
            self._clock.set_override(message.clock.sec * NS_PER_S + message.clock.nanosec)
