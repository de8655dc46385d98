"""The time of a message, by its stamp or its receipt, and jumps of this host's clock, after which everything seen
before is invalid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.input_settings import StampRule
from auras_ros.observation import FaultName, ObservationFault
from auras_ros.ros import Duration, JumpThreshold, Node
from auras_ros.ros.image import stamp_ns

LEAP_S = 10  # a larger step of simulated time is a jump
LATE_NS = 2_000_000_000  # how long after a jump older messages may still come


class StampReader:
    """`on_clock_jump()` is called when the clock has jumped. Used in the executor's thread."""

    def __init__(self, node: Node, on_clock_jump: Callable[[], None], rule: StampRule) -> None:
        self._node, self._on_clock_jump = node, on_clock_jump
        self._rule = rule
        self._monotonic = MonotonicClock()
        self._jumped_ns: int | None = None
        # rclpy keeps only a raw pointer to the handle, so this reference is needed until `close`
        self._jumps = node.get_clock().create_jump_callback(
            JumpThreshold(
                min_forward=Duration(seconds=LEAP_S), min_backward=Duration(nanoseconds=-1), on_clock_change=True
            ),
            post_callback=lambda jump: self.jumped(),
        )

    def close(self) -> None:
        self._jumps.unregister()

    def read(self, header: Any, *, is_image: bool) -> tuple[int, int]:
        """(the stamp, its age by the same clock) of a message that has just come. Simulated time is only known as of
        the last /clock, so a stamp ahead of it has the age 0 and is not from the future."""
        now_ns = int(self._node.get_clock().now().nanoseconds)
        if self._rule.receipt_latency_ns is not None:
            latency_ns = self._rule.receipt_latency_ns if is_image else 0
            return now_ns - latency_ns, latency_ns
        stamp = stamp_ns(header)
        ago_ns = now_ns - stamp
        return stamp, max(0, ago_ns) if self._node.get_parameter("use_sim_time").value else ago_ns

    def jumped(self) -> None:
        """Time went back (simulated time, or this host's clock was set), jumped ahead, or another clock is used:
        everything seen before is invalid."""
        self._jumped_ns = self._monotonic.now_ns()
        self._on_clock_jump()
        self._node.get_logger().warning(
            "the clock went back, jumped ahead, or was replaced: earlier observations are dropped"
        )

    def recovers(self, fault: ObservationFault, now_ns: int, forget: Callable[[], None]) -> bool:
        """Whether a message that was refused because time went back is to be put again. forget: drops all that was
        taken before."""
        if fault.name not in (FaultName.BACKWARDS, FaultName.CLOCK_BACK, FaultName.UNSTAMPED):
            return False
        if self._just_jumped(now_ns):
            forget()  # late messages from before the jump
            return True
        if fault.name is FaultName.CLOCK_BACK:
            self.jumped()
        return fault.name is FaultName.CLOCK_BACK

    def _just_jumped(self, now_ns: int) -> bool:
        return self._jumped_ns is not None and now_ns - self._jumped_ns < LATE_NS
