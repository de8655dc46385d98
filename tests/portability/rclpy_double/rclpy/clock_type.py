"""rclpy.clock_type."""

from __future__ import annotations

from enum import IntEnum


class ClockType(IntEnum):
    ROS_TIME = 1
    SYSTEM_TIME = 2
    STEADY_TIME = 3
