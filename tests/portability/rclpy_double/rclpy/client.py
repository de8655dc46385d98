"""rclpy.client."""

from .entities import Client

__all__ = ["Client"]
