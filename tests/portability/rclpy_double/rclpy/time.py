"""rclpy.time."""

from __future__ import annotations

from typing import Any

from rclpy_recording import strict

from .clock_type import ClockType
from .duration import Duration


@strict
class Time:
    def __init__(
        self, *, seconds: float = 0, nanoseconds: int = 0, clock_type: ClockType = ClockType.SYSTEM_TIME
    ) -> None:
        self.nanoseconds, self.clock_type = int(seconds * 10**9) + int(nanoseconds), clock_type

    def seconds_nanoseconds(self) -> tuple[int, int]:
        return divmod(self.nanoseconds, 10**9)

    def to_msg(self) -> Any:
        from builtin_interfaces.msg import Time as Message

        sec, nanosec = divmod(self.nanoseconds, 10**9)
        return Message(sec=sec, nanosec=nanosec)

    @classmethod
    def from_msg(cls, msg: Any, clock_type: ClockType = ClockType.ROS_TIME) -> Time:
        return cls(seconds=msg.sec, nanoseconds=msg.nanosec, clock_type=clock_type)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Time):
            if self.clock_type != other.clock_type:
                raise TypeError("Can't subtract times with different clock types")
            return Duration(nanoseconds=self.nanoseconds - other.nanoseconds)
        return Time(nanoseconds=self.nanoseconds - other.nanoseconds, clock_type=self.clock_type)

    def __add__(self, other: Duration) -> Time:
        return Time(nanoseconds=self.nanoseconds + other.nanoseconds, clock_type=self.clock_type)
