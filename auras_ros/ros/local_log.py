"""A log for this machine only: what must not be told to other nodes, as /rosout would.

ROS publishes on /rosout the lines of a node's own logger and of its children; the lines of any other logger are only
printed (and written to rclpy's log file).
"""

from __future__ import annotations

from typing import Any

from auras_ros.ros import Node, get_logger


def local_logger(node: Node) -> Any:
    """A logger whose lines are not published, named `local.` and the node's name."""
    return get_logger(f"local.{node.get_logger().name}")
