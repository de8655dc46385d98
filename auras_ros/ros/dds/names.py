"""ROS 2 names: validation, expansion, remapping, and the DDS names.

Follows the published rules for topic, service, node and namespace names. It never calls the middleware.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SUBSTITUTION = re.compile(r"\{([^{}]*)\}")
MAX_NAME_LENGTH = 255


class InvalidNameError(ValueError):
    """A node, namespace, topic or service name breaks the ROS 2 rules; the message says which and how."""


@dataclass(frozen=True)
class Remap:
    """One rule `[node:]source:=target`; node is None if the rule holds for every node of the process."""

    node: str | None
    source: str
    target: str


def check_node_name(name: str) -> str:
    """Returns `name` if it is a valid node name (one token). Raises InvalidNameError."""
    if not _TOKEN.match(name):
        raise InvalidNameError(f"node name {name!r}: letters, digits and _ only, not beginning with a digit")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidNameError(f"node name {name[:20]!r}…: longer than {MAX_NAME_LENGTH} characters")
    return name


def normalize_namespace(namespace: str | None) -> str:
    """The absolute form of a namespace: '' and None become '/', 'robot' becomes '/robot'."""
    if not namespace:
        return "/"
    absolute = namespace if namespace.startswith("/") else "/" + namespace
    if absolute == "/":
        return absolute
    _check_tokens(absolute, "namespace", namespace)
    return absolute


def fully_qualified(namespace: str, node: str) -> str:
    """'/robot' and 'agent' give '/robot/agent'."""
    return f"{namespace.rstrip('/')}/{node}"


def _check_tokens(absolute: str, what: str, shown: str) -> None:
    if absolute.endswith("/"):
        raise InvalidNameError(f"{what} {shown!r}: must not end with /")
    if len(absolute) > MAX_NAME_LENGTH:
        raise InvalidNameError(f"{what} {shown[:20]!r}…: longer than {MAX_NAME_LENGTH} characters")
    for token in absolute[1:].split("/"):
        if not token:
            raise InvalidNameError(f"{what} {shown!r}: must not contain //")
        if not _TOKEN.match(token):
            raise InvalidNameError(
                f"{what} {shown!r}: {token!r} may contain letters, digits and _ only, not beginning with a digit"
            )


def expand(name: str, namespace: str, node: str, what: str = "topic") -> str:
    """The absolute name of a relative, private (~/…) or absolute one, with {node}, {ns} filled in.

    Raises InvalidNameError, naming the part that breaks a rule.
    """
    if not name:
        raise InvalidNameError(f"{what} name must not be empty")
    values = {"node": node, "ns": namespace.strip("/"), "namespace": namespace.strip("/")}

    def fill(match: re.Match[str]) -> str:
        if match.group(1) not in values:
            raise InvalidNameError(f"{what} {name!r}: unknown substitution {match.group(0)}")
        return values[match.group(1)]

    filled = _SUBSTITUTION.sub(fill, name).replace("//", "/") if "{" in name else name
    if filled.startswith("~"):
        if filled != "~" and not filled.startswith("~/"):
            raise InvalidNameError(f"{what} {name!r}: ~ must be followed by /")
        filled = fully_qualified(namespace, node) + filled[1:]
    elif not filled.startswith("/"):
        filled = f"{namespace.rstrip('/')}/{filled}"
    _check_tokens(filled, what, name)
    return filled


def remap(absolute: str, rules: Sequence[Remap], namespace: str, node: str, what: str = "topic") -> str:
    """The name after the first rule that applies; rules are compared in absolute form."""
    scheme = "rosservice://" if what == "service" else "rostopic://"
    for rule in rules:
        if rule.node not in (None, node) or rule.source.startswith("__"):
            continue
        source = rule.source
        if source.startswith(("rostopic://", "rosservice://")):
            if not source.startswith(scheme):
                continue
            source = source[len(scheme) :]
        if expand(source, namespace, node, what) == absolute:
            return expand(rule.target, namespace, node, what)
    return absolute


def remap_node(name: str, namespace: str, rules: Sequence[Remap]) -> tuple[str, str]:
    """Node name and namespace after __node (or __name) and __ns; the first rule of each kind wins."""
    mine = [rule for rule in rules if rule.node in (None, name)]
    new_name = next((rule.target for rule in mine if rule.source in ("__node", "__name")), name)
    return new_name, next((rule.target for rule in mine if rule.source == "__ns"), namespace)


def dds_topic(absolute: str) -> str:
    """'/camera/image_raw' → 'rt/camera/image_raw'."""
    return "rt" + absolute


def dds_service(absolute: str) -> tuple[str, str]:
    """The request and the reply topic of a service: '/reset' → 'rq/resetRequest', 'rr/resetReply'."""
    return f"rq{absolute}Request", f"rr{absolute}Reply"


def dds_type(ros_type: str) -> str:
    """'sensor_msgs/msg/Image' → 'sensor_msgs::msg::dds_::Image_'."""
    package, kind, name = ros_type.split("/")
    return f"{package}::{kind}::dds_::{name}_"
