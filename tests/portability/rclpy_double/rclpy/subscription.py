"""rclpy.subscription."""

from .entities import Subscription

__all__ = ["Subscription"]
