"""rclpy.topic_endpoint_info."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TopicEndpointInfo:
    node_name: str
    node_namespace: str
    topic_type: str
    endpoint_gid: list[int] = field(default_factory=list)
    qos_profile: Any = None
