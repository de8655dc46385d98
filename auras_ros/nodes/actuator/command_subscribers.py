"""Who receives the commands, as the ROS graph shows: a subscriber of another type receives none, and nobody tells it.

A base that takes a Twist where a TwistStamped is published stands still without a word. The caller decides what
follows. Call `look` at most a few times a second, in the executor's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auras_ros.nodes.common.topic_causes import endpoint_node, shown
from auras_ros.ros import Node
from auras_ros.ros.msg import Float64MultiArray, Twist, TwistStamped, full_type_name

COMMAND_OF_TYPE = {  # type of a subscriber -> the value of `command` with which it receives
    full_type_name(Float64MultiArray): "array",
    full_type_name(TwistStamped): "twist",
    full_type_name(Twist): "twist_unstamped",
}


class CommandSubscribers:
    """types: topic of commands -> the message class that is published there. action_topic: the one whose class follows
    from `command`."""

    def __init__(self, node: Node, types: Mapping[str, Any], action_topic: str) -> None:
        self._node = node
        self._types = {topic: full_type_name(kind) for topic, kind in types.items()}
        self._action_topic = action_topic
        self.mismatch = ""  # who subscribes as another type, with the remedy; empty: nobody

    def look(self) -> None:
        """Read the graph."""
        self.mismatch = "; ".join(filter(None, (self._mismatch(topic, ours) for topic, ours in self._types.items())))

    def _mismatch(self, topic: str, ours: str) -> str:
        infos = self._node.get_subscriptions_info_by_topic(topic)
        others = [info for info in infos if info.topic_type != ours]
        if not others:
            return ""
        name = self._node.resolve_topic_name(topic)
        nodes = shown(sorted({endpoint_node(info) for info in others}))
        types = sorted({info.topic_type for info in others})
        text = f"{nodes} subscribes to {name} as {shown(types)}, and {ours} is published: it receives nothing"
        if topic == self._action_topic and len(types) == 1 and types[0] in COMMAND_OF_TYPE:
            text += f"; set command: {COMMAND_OF_TYPE[types[0]]}"
        return text if len(infos) > len(others) else f"{text}; nobody else subscribes to it"
