"""What rclpy.node.Node says of the graph; here that is this process's own nodes."""

from __future__ import annotations

from typing import Any

from rclpy_recording import strict

from .entities import Publisher, Subscription
from .names import expand
from .topic_endpoint_info import TopicEndpointInfo

nodes: list[Any] = []


@strict
class Graph:
    KNOWN_AS = "rclpy.node.Node"
    _double_name: str
    _double_namespace: str

    def resolve_topic_name(self, topic: str, *, only_expand: bool = False) -> str:
        return expand(topic, self._double_name, self._double_namespace, is_service=False)

    def resolve_service_name(self, service: str, *, only_expand: bool = False) -> str:
        return expand(service, self._double_name, self._double_namespace, is_service=True)

    def count_publishers(self, topic_name: str) -> int:
        return len(self.get_publishers_info_by_topic(topic_name))

    def count_subscribers(self, topic_name: str) -> int:
        return len(self.get_subscriptions_info_by_topic(topic_name))

    def get_publishers_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        return self._endpoints(topic_name, Publisher)

    def get_subscriptions_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        return self._endpoints(topic_name, Subscription)

    def _endpoints(self, topic_name: str, kind: type) -> list[TopicEndpointInfo]:
        name = self.resolve_topic_name(topic_name)
        return [
            TopicEndpointInfo(
                node_name=node.get_name(),
                node_namespace=node.get_namespace(),
                topic_type=f"{each.msg_type.__module__.replace('.', '/')}/{each.msg_type.__name__}",
                endpoint_gid=list(id(each).to_bytes(16, "little")),
                qos_profile=each.qos_profile,
            )
            for node in nodes
            for each in node._made(kind)
            if each.topic_name == name
        ]

    def get_node_names(self) -> list[str]:
        return [node.get_name() for node in nodes]

    def get_node_names_and_namespaces(self) -> list[tuple[str, str]]:
        return [(node.get_name(), node.get_namespace()) for node in nodes]

    def get_topic_names_and_types(self, no_demangle: bool = False) -> list[tuple[str, list[str]]]:
        return []
