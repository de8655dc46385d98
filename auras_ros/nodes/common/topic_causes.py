"""Why nothing comes on a topic, as the ROS graph knows: nobody publishes it, it has another type, or its publisher is
silent. And what a user may have meant.

It is asked once a second while something is missing, in the executor's thread. It decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from auras_ros.ros import Node
from auras_ros.ros.msg import CompressedImage, Image, JointState, full_type_name
from auras_ros.topic_names import ASSIGN, COMPRESSED

NAMELESS = ("", "_NODE_NAME_UNKNOWN_")  # our layer's, rclpy's
NAME_UNKNOWN = "a node of unknown name"
SHOWN = 4  # names in a text


def endpoint_node(info: Any) -> str:
    """The node of a publisher or subscription, with its namespace. DDS may know the endpoint before its node."""
    if info.node_name in NAMELESS:
        return NAME_UNKNOWN
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def shown(names: Iterable[str]) -> str:
    """Names as text: the first of them, and how many more there are."""
    listed = [name[:80] for name in names]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def why_nothing_comes(node: Node, topic: str, kind: Any) -> str:
    """Why no message of this type comes on a topic."""
    full_name, wanted = node.resolve_topic_name(topic), full_type_name(kind)
    infos = node.get_publishers_info_by_topic(topic)
    if not infos:
        return f"nobody publishes {full_name}"
    names = shown(sorted({endpoint_node(info) for info in infos}))
    if all(info.topic_type != wanted for info in infos):
        types = shown(sorted({info.topic_type for info in infos}))
        return f"{names} publishes {full_name} as {types}, not as {wanted}: nothing can be received"
    return f"{names} publishes {full_name} and is silent"


def why_no_image(node: Node, camera: str, topics: Mapping[str, str], kind: Any) -> str:
    """Why no image of a camera comes, and the remedy. topics: of all cameras; kind: Image or CompressedImage."""
    text = why_nothing_comes(node, topics[camera], kind)
    if node.count_publishers(topics[camera]):
        return text
    if there := topics_of_type(node, kind, list(topics.values())):
        base = there[0].removesuffix(COMPRESSED) if kind is CompressedImage else there[0]
        return f"{text}; images are on {shown(there)}: set camera_topics: [{camera}{ASSIGN}{base}]"
    other, value = (Image, "false") if kind is CompressedImage else (CompressedImage, "true")
    if there := topics_of_type(node, other, ()):
        return f"{text}; images of the other kind are on {shown(there)}: set compressed: {value}, and camera_topics"
    return text


def why_no_joint_states(node: Node, topic: str) -> str:
    """Why no joint states come, and the remedy."""
    text = why_nothing_comes(node, topic, JointState)
    there = topics_of_type(node, JointState, [topic]) if not node.count_publishers(topic) else []
    return f"{text}; joint states are on {shown(there)}: set joint_states_topic: {there[0]}" if there else text


def topics_of_type(node: Node, kind: Any, besides: Sequence[str]) -> list[str]:
    """Topics of this type that somebody publishes, other than those."""
    wanted, known = full_type_name(kind), {node.resolve_topic_name(topic) for topic in besides}
    return [
        name
        for name, types in node.get_topic_names_and_types()
        if wanted in types and name not in known and node.count_publishers(name) > 0
    ]


def several_publishers(node: Node, topic: str, kind: Any) -> str:
    """The nodes that publish a topic as this type, if there are several; else empty."""
    infos = [info for info in node.get_publishers_info_by_topic(topic) if info.topic_type == full_type_name(kind)]
    if len(infos) < 2:
        return ""
    counts = Counter(endpoint_node(info) for info in infos)
    return shown(f"{name} ({count} times)" if count > 1 else name for name, count in sorted(counts.items()))
