"""Names as ROS 2 expands and refuses them."""

from __future__ import annotations

import re

from .exceptions import InvalidServiceNameException, InvalidTopicNameException

_NODE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC = re.compile(r"(~/|/)?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*")


def is_node_name(name: str) -> bool:
    return _NODE.fullmatch(name) is not None


def expand(name: str, node: str, namespace: str, *, is_service: bool) -> str:
    """The absolute name. InvalidTopicNameException or InvalidServiceNameException where it is none."""
    if _TOPIC.fullmatch(name) is None or "__" in name:
        raise (InvalidServiceNameException if is_service else InvalidTopicNameException)(f"invalid name {name!r}")
    base = namespace.rstrip("/")
    if name.startswith("~/"):
        return f"{base}/{node}/{name[2:]}"
    return name if name.startswith("/") else f"{base}/{name}"
