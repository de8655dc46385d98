"""rclpy.timer."""

from .entities import Timer

__all__ = ["Timer"]
