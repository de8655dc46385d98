"""rclpy.publisher."""

from .entities import Publisher

__all__ = ["Publisher"]
