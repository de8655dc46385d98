"""Names as ROS 2 expands, remaps and refuses them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

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


class Remap(NamedTuple):
    """One rule `[node:]source:=target`; no node: every one of the process."""

    node: str
    source: str
    target: str

    @classmethod
    def parse(cls, rule: str) -> Remap:
        name, _, target = rule.partition(":=")
        node, _, source = name.rpartition(":")
        return cls(node, source, target)


def remap_node(name: str, namespace: str, rules: Sequence[Remap]) -> tuple[str, str]:
    """A node's name and namespace by the first rule for each."""
    mine = [rule for rule in rules if rule.node in ("", name)]
    names = [rule.target for rule in mine if rule.source in ("__node", "__name")]
    spaces = [rule.target for rule in mine if rule.source == "__ns"]
    return [*names, name][0], [*spaces, namespace][0]


def remap(absolute: str, node: str, namespace: str, rules: Sequence[Remap], *, is_service: bool) -> str:
    """An expanded name by the first rule whose source, expanded too, is this name."""
    for rule in rules:
        mine = rule.node in ("", node) and not rule.source.startswith("__")
        if mine and expand(rule.source, node, namespace, is_service=is_service) == absolute:
            return expand(rule.target, node, namespace, is_service=is_service)
    return absolute
