from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from launch import LaunchContext


def get_ros_node(context: LaunchContext) -> Any:
    """The rclpy node of `ros2 launch`, as far as it is asked for what it sees of a topic."""
    if context.ros_node is not None:
        return context.ros_node

    def get_publishers_info_by_topic(topic_name: str, no_mangle: bool = False) -> list[Any]:
        return [SimpleNamespace(endpoint_gid=gid) for gid in context.writers.get(topic_name, [])]

    return SimpleNamespace(get_publishers_info_by_topic=get_publishers_info_by_topic)
