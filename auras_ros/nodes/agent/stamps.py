"""Stamps by this host's clock, and what to make of a clock that jumps: the world of before is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.ros import Duration, JumpThreshold, Node
from auras_ros.ros.image import stamp_ns

LEAP_S = 10  # of simulated time: no simulation takes such a step on its way
LATE_NS = 2_000_000_000  # how long after a jump messages of before may still come


class StampReader:
    """`on_clock_jump()` is called when the clock has jumped. Of the executor's thread."""

    def __init__(self, node: Node, on_clock_jump: Callable[[], None]) -> None:
        self._node, self._on_clock_jump = node, on_clock_jump
        self._monotonic = MonotonicClock()
        self._jumped_ns: int | None = None
        # rclpy keeps a bare pointer to the handle: a reference of ours, until `close`
        self._jumps = node.get_clock().create_jump_callback(
            JumpThreshold(
                min_forward=Duration(seconds=LEAP_S), min_backward=Duration(nanoseconds=-1), on_clock_change=True
            ),
            post_callback=lambda jump: self.jumped(),
        )

    def close(self) -> None:
        self._jumps.unregister()

    def read(self, header: Any) -> tuple[int, int]:
        """(the stamp, how long ago it was by the same clock). Simulated time is known as of the last /clock alone: a
        stamp ahead of it is 0 ago, and never from the future."""
        stamp = stamp_ns(header)
        ago_ns = self._node.get_clock().now().nanoseconds - stamp
        return stamp, max(0, ago_ns) if self._node.get_parameter("use_sim_time").value else ago_ns

    def jumped(self) -> None:
        """Time went back (simulated, or this host's clock was set), leapt, or another clock is in use: what was seen
        belongs to a world that is over."""
        self._jumped_ns = self._monotonic.now_ns()
        self._on_clock_jump()
        self._node.get_logger().warning(
            "the clock went back, leapt ahead, or was changed for another: what was seen is forgotten"
        )

    def just_jumped(self, now_ns: int) -> bool:
        return self._jumped_ns is not None and now_ns - self._jumped_ns < LATE_NS
