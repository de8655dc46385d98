"""What rclpy.node.Node says of the graph; here that is this process's own nodes."""

from __future__ import annotations

from typing import Any

from rclpy_recording import strict

from .entities import Publisher, Subscription
from .names import Remap, expand, remap
from .topic_endpoint_info import TopicEndpointInfo

nodes: list[Any] = []


@strict
class Graph:
    KNOWN_AS = "rclpy.node.Node"
    _double_name: str
    _double_namespace: str
    _double_remaps: list[Remap]

    def resolve_topic_name(self, topic: str, *, only_expand: bool = False) -> str:
        return self._double_resolve(topic, only_expand, is_service=False)

    def resolve_service_name(self, service: str, *, only_expand: bool = False) -> str:
        return self._double_resolve(service, only_expand, is_service=True)

    def _double_resolve(self, name: str, only_expand: bool, *, is_service: bool) -> str:
        node, space = self._double_name, self._double_namespace
        absolute = expand(name, node, space, is_service=is_service)
        return absolute if only_expand else remap(absolute, node, space, self._double_remaps, is_service=is_service)

    def count_publishers(self, topic_name: str) -> int:
        return len(self._endpoints(self.resolve_topic_name(topic_name, only_expand=True), Publisher))  # not remapped

    def count_subscribers(self, topic_name: str) -> int:
        return len(self._endpoints(self.resolve_topic_name(topic_name, only_expand=True), Subscription))

    def get_publishers_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        return self._endpoints(self.resolve_topic_name(topic_name), Publisher)

    def get_subscriptions_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        return self._endpoints(self.resolve_topic_name(topic_name), Subscription)

    def _endpoints(self, name: str, kind: type) -> list[TopicEndpointInfo]:
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
