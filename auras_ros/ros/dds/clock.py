"""Time as in rclpy: durations, stamps of a clock type, and clocks that follow /clock and report jumps.

A clock calls no timer itself: timers read it, and the time source (`timesource.py`) sets it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import total_ordering
from typing import Any

from .messages import message_type

NS_PER_S = 1_000_000_000


class ClockType(IntEnum):
    ROS_TIME = 1
    SYSTEM_TIME = 2
    STEADY_TIME = 3


class ClockChange(IntEnum):
    """The cause of a time jump."""

    ROS_TIME_NO_CHANGE = 1
    ROS_TIME_ACTIVATED = 2
    ROS_TIME_DEACTIVATED = 3
    SYSTEM_TIME_NO_CHANGE = 4


def _message(name: str, nanoseconds: int) -> Any:
    """Seconds have 32 bits: a host whose clock is set beyond 2038 still stamps, with the last time that there is."""
    sec, nanosec = divmod(min(max(nanoseconds, -(2**31) * NS_PER_S), 2**31 * NS_PER_S - 1), NS_PER_S)
    return message_type(f"builtin_interfaces/msg/{name}")(sec=sec, nanosec=nanosec)


@dataclass(frozen=True, order=True, init=False)
class Duration:
    """A signed length of time in nanoseconds."""

    nanoseconds: int

    def __init__(self, *, seconds: float = 0, nanoseconds: int = 0) -> None:
        vars(self).update(nanoseconds=int(seconds * NS_PER_S) + int(nanoseconds))

    def to_msg(self) -> Any:
        return _message("Duration", self.nanoseconds)

    @classmethod
    def from_msg(cls, msg: Any) -> Duration:
        return cls(nanoseconds=msg.sec * NS_PER_S + msg.nanosec)


@total_ordering
class Time:
    """A stamp of one clock type; stamps of different types are never compared."""

    __slots__ = ("clock_type", "nanoseconds")

    def __init__(
        self, *, seconds: float = 0, nanoseconds: int = 0, clock_type: ClockType = ClockType.SYSTEM_TIME
    ) -> None:
        self.nanoseconds = int(seconds * NS_PER_S) + int(nanoseconds)
        self.clock_type = clock_type
        if self.nanoseconds < 0:
            raise ValueError(f"Time: {self.nanoseconds} ns is negative")

    def _same_clock(self, other: Time) -> None:
        if self.clock_type != other.clock_type:
            raise TypeError(f"times of {self.clock_type.name} and {other.clock_type.name} do not compare")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Time):
            return NotImplemented
        self._same_clock(other)
        return self.nanoseconds == other.nanoseconds

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Time):
            return NotImplemented
        self._same_clock(other)
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash((self.nanoseconds, self.clock_type))

    def __add__(self, other: Duration) -> Time:
        if not isinstance(other, Duration):
            return NotImplemented
        return Time(nanoseconds=self.nanoseconds + other.nanoseconds, clock_type=self.clock_type)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        """Time − Time is a Duration, Time − Duration a Time."""
        if isinstance(other, Time):
            self._same_clock(other)
            return Duration(nanoseconds=self.nanoseconds - other.nanoseconds)
        if isinstance(other, Duration):
            return Time(nanoseconds=self.nanoseconds - other.nanoseconds, clock_type=self.clock_type)
        return NotImplemented

    def __repr__(self) -> str:
        return f"Time(nanoseconds={self.nanoseconds}, clock_type={self.clock_type.name})"

    def to_msg(self) -> Any:
        return _message("Time", self.nanoseconds)

    @classmethod
    def from_msg(cls, msg: Any, clock_type: ClockType = ClockType.ROS_TIME) -> Time:
        return cls(nanoseconds=msg.sec * NS_PER_S + msg.nanosec, clock_type=clock_type)


@dataclass(frozen=True)
class TimeJump:
    """The argument of a post-jump callback; delta is new time minus old time."""

    clock_change: ClockChange
    delta: Duration


@dataclass(frozen=True)
class JumpThreshold:
    """The smallest jump that is reported; None: none in that direction is. min_backward is negative."""

    min_forward: Duration | None
    min_backward: Duration | None
    on_clock_change: bool = True

    def exceeded(self, jump: TimeJump) -> bool:
        if jump.clock_change in (ClockChange.ROS_TIME_ACTIVATED, ClockChange.ROS_TIME_DEACTIVATED):
            return self.on_clock_change
        forward = self.min_forward is not None and jump.delta >= self.min_forward
        return forward or (self.min_backward is not None and jump.delta <= self.min_backward)


@dataclass(frozen=True, eq=False)
class JumpHandle:
    """One registration of jump callbacks; `unregister` ends it."""

    clock: Clock
    threshold: JumpThreshold
    pre_callback: Callable[[], None] | None
    post_callback: Callable[[TimeJump], None] | None

    def unregister(self) -> None:
        if self in self.clock._jump_handles:
            self.clock._jump_handles.remove(self)


class Clock:
    """A clock of one type. ROS_TIME is system time until a time source sets it (`use_sim_time`)."""

    def __init__(self, *, clock_type: ClockType = ClockType.SYSTEM_TIME) -> None:
        self.clock_type = ClockType(clock_type)
        self._override_ns: int | None = None
        self._jump_handles: list[JumpHandle] = []
        self._lock = threading.Lock()

    @property
    def ros_time_is_active(self) -> bool:
        """True while a time source drives this clock."""
        return self._override_ns is not None

    def now_ns(self) -> int:
        """Nanoseconds of this clock; 0 if simulated time is on and no /clock message has come yet."""
        override_ns = self._override_ns
        if override_ns is not None:
            return override_ns
        return time.monotonic_ns() if self.clock_type == ClockType.STEADY_TIME else time.time_ns()

    def now(self) -> Time:
        return Time(nanoseconds=self.now_ns(), clock_type=self.clock_type)

    def create_jump_callback(
        self,
        threshold: JumpThreshold,
        *,
        pre_callback: Callable[[], None] | None = None,
        post_callback: Callable[[TimeJump], None] | None = None,
    ) -> JumpHandle:
        """Report jumps of at least `threshold`: pre_callback() before, post_callback(jump) after the change."""
        if pre_callback is None and post_callback is None:
            raise ValueError("create_jump_callback: one of pre_callback and post_callback must be given")
        handle = JumpHandle(self, threshold, pre_callback, post_callback)
        self._jump_handles.append(handle)
        return handle

    def set_override(self, now_ns: int | None) -> None:
        """Set a ROS clock to `now_ns`, or with None back to system time; reports the jump."""
        if self.clock_type != ClockType.ROS_TIME:
            raise ValueError(f"only a ROS_TIME clock follows /clock, this is {self.clock_type.name}")
        with self._lock:
            before, was_active = self.now_ns(), self.ros_time_is_active
            if now_ns is None and not was_active:
                return
            after = time.time_ns() if now_ns is None else now_ns
            if was_active == (now_ns is not None):
                change = ClockChange.ROS_TIME_NO_CHANGE
            else:
                change = ClockChange.ROS_TIME_DEACTIVATED if was_active else ClockChange.ROS_TIME_ACTIVATED
            jump = TimeJump(change, Duration(nanoseconds=after - before))
            due = [handle for handle in self._jump_handles if handle.threshold.exceeded(jump)]
            for handle in due:
                if handle.pre_callback is not None:
                    handle.pre_callback()
            self._override_ns = now_ns
        for handle in due:
            if handle.post_callback is not None:
                handle.post_callback(jump)
