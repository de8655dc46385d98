"""rclpy.service."""

from .entities import Service

__all__ = ["Service"]
