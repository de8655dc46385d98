"""rclpy.clock. Simulated time is `advance`d by the test."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from rclpy_recording import refused, strict

from .clock_type import ClockType
from .duration import Duration
from .time import Time


class ClockChange(IntEnum):
    ROS_TIME_NO_CHANGE = 1
    ROS_TIME_ACTIVATED = 2
    ROS_TIME_DEACTIVATED = 3
    SYSTEM_TIME_NO_CHANGE = 4


@strict
class JumpThreshold:
    def __init__(
        self, *, min_forward: Duration | None, min_backward: Duration | None, on_clock_change: bool = True
    ) -> None:
        if min_forward is not None and min_forward.nanoseconds <= 0:
            raise ValueError("min_forward must be a positive non-zero duration")
        if min_backward is not None and min_backward.nanoseconds >= 0:
            raise ValueError("min_backward must be a negative non-zero duration")
        self.min_forward, self.min_backward, self.on_clock_change = min_forward, min_backward, on_clock_change


@strict
class TimeJump:
    def __init__(self, clock_change: ClockChange, delta: Duration) -> None:
        self.clock_change, self.delta = clock_change, delta


@strict
class JumpHandle:
    def __init__(
        self,
        *,
        clock: Any,
        threshold: JumpThreshold,
        pre_callback: Callable[[], None] | None,
        post_callback: Callable[[TimeJump], None] | None,
    ) -> None:
        if pre_callback is None and post_callback is None:
            raise ValueError("One of pre_callback or post_callback must be callable")
        self._clock, self._post = clock, post_callback

    def unregister(self) -> None:
        self._clock._handles = [each for each in self._clock._handles if each() is not self]


@strict
class Clock:
    def __init__(self, *, clock_type: ClockType = ClockType.SYSTEM_TIME) -> None:
        self.clock_type = clock_type
        self._handles: list[weakref.ref[JumpHandle]] = []
        self._simulated_ns: int | None = None

    def now(self) -> Time:
        steady = self.clock_type is ClockType.STEADY_TIME
        ns = time.monotonic_ns() if steady else time.time_ns()
        return Time(nanoseconds=ns if self._simulated_ns is None else self._simulated_ns, clock_type=self.clock_type)

    def create_jump_callback(
        self,
        threshold: JumpThreshold,
        *,
        pre_callback: Callable[[], None] | None = None,
        post_callback: Callable[[TimeJump], None] | None = None,
    ) -> JumpHandle:
        handle = JumpHandle(clock=self, threshold=threshold, pre_callback=pre_callback, post_callback=post_callback)
        self._handles.append(weakref.ref(handle, self._lost))
        return handle

    def _lost(self, handle: Any) -> None:
        """rclpy keeps a bare pointer to the handle, which a jump then follows."""
        if handle in self._handles:
            refused.append("rclpy.clock.Clock.create_jump_callback: the handle was let go of while registered")

    def _jump(self, delta_ns: int) -> None:
        """A test's own: tell those who asked that simulated time jumped."""
        for handle in [each() for each in self._handles]:
            if handle is not None and handle._post is not None:
                handle._post(TimeJump(ClockChange.ROS_TIME_NO_CHANGE, Duration(nanoseconds=delta_ns)))


ROSClock = Clock
