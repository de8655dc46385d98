"""A node's view of the graph, as rclpy names it; `Graph` does the work.

Every question is answered for all processes, this one included.
"""

from __future__ import annotations

from .context import Context
from .graph import TopicEndpointInfo


class NodeGraph:
    """Mixed into Node; needs `context` and `resolve_topic_name`."""

    context: Context

    def resolve_topic_name(self, topic: str, *, only_expand: bool = False) -> str:
        raise NotImplementedError

    def count_publishers(self, topic_name: str) -> int:
        """How many publishers a topic has, in all processes."""
        return len(self.get_publishers_info_by_topic(topic_name))

    def count_subscribers(self, topic_name: str) -> int:
        return len(self.get_subscriptions_info_by_topic(topic_name))

    def get_publishers_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        """The publishers of a topic with their nodes, in all processes."""
        return self.context.graph.endpoints_of(self.resolve_topic_name(topic_name), publishers=True)

    def get_subscriptions_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        return self.context.graph.endpoints_of(self.resolve_topic_name(topic_name), publishers=False)

    def get_node_names_and_namespaces(self) -> list[tuple[str, str]]:
        return self.context.graph.nodes()

    def get_node_names(self) -> list[str]:
        return [name for name, _ in self.context.graph.nodes()]

    def get_topic_names_and_types(self, no_demangle: bool = False) -> list[tuple[str, list[str]]]:
        return sorted((name, sorted(kinds)) for name, kinds in self.context.graph.topics().items())
