"""Names of topics: which one a camera has, the remapping rules of a configuration, and what a name becomes in a node.

It loads no ROS: checking a config needs none.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from auras_ros.parameters import ParameterError

ANY = "*"  # in a name: any characters
ASSIGN = ":="  # between a camera and its topic, and in a remapping rule, as ROS 2 writes it
COMPRESSED = "/compressed"  # what image_transport puts behind the name of the raw images' topic
JOINT_STATES = "joint_states"
_NAME = re.compile(r"(~/|/)?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
_SUBSTITUTION = re.compile(r"\{(node|ns|namespace)\}")
_NODE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def is_topic(name: object) -> bool:
    """Whether it is the name of a topic: relative, private (~/state) or absolute, with {node} or {ns} in it or not."""
    return isinstance(name, str) and bool(_NAME.fullmatch(_SUBSTITUTION.sub("x", name)))


def check_topic(owner: str, parameter: str, name: object) -> None:
    """Raise ParameterError unless it is the name of a topic."""
    if not is_topic(name):
        raise ParameterError(f"{owner}: {parameter}: {name!r:.80} is not a topic name")


def read_camera_topics(owner: str, pairs: Sequence[object]) -> dict[str, str]:
    """Camera -> topic of its raw images, from pairs such as front:=/camera/camera/color/image_raw. Raises
    ParameterError."""
    topics: dict[str, str] = {}
    for pair in pairs:
        camera, separator, topic = str(pair).partition(ASSIGN)
        if not isinstance(pair, str) or not separator or not camera:
            example = "front:=/camera/camera/color/image_raw"
            raise ParameterError(f"{owner}: camera_topics: expected camera{ASSIGN}topic as {example}, got {pair!r:.80}")
        check_topic(owner, "camera_topics", topic)
        if camera in topics:
            raise ParameterError(f"{owner}: camera_topics: {camera!r} is there twice")
        topics[camera] = topic
    return topics


def check_cameras(owner: str, topics: Iterable[str], cameras: Sequence[str]) -> None:
    """Raise ParameterError if `camera_topics` names a camera that is none of `cameras`."""
    for camera in topics:
        if camera not in cameras:
            known = ", ".join(cameras) or "it has none"
            raise ParameterError(f"{owner}: camera_topics: {camera!r} is none of the cameras ({known})")


def image_topic(camera: str, topics: Mapping[str, str], *, compressed: bool) -> str:
    """The topic of a camera's images. topics: those of `camera_topics`."""
    topic = topics.get(camera, f"camera/{camera}/image_raw")
    return topic + COMPRESSED if compressed and not topic.endswith(COMPRESSED) else topic


@dataclass(frozen=True)
class RemapRule:
    """`source:=target`, or `node:source:=target` for one node alone, as `--ros-args -r` takes it."""

    node: str  # empty: every node
    source: str
    target: str

    @classmethod
    def read(cls, text: object) -> RemapRule:
        """Raises ParameterError."""
        left, separator, target = str(text).partition(ASSIGN)
        node, _, source = left.rpartition(":")
        if source.startswith("__"):
            raise ParameterError(
                f"remap: {text!r:.80}: names of nodes cannot be changed, because sections are found by them; "
                "a namespace is set by --namespace, or the launch argument namespace"
            )
        is_node = not node or _NODE.fullmatch(node)
        if not (isinstance(text, str) and separator and is_node and is_topic(source) and is_topic(target)):
            example = "camera/front/image_raw:=/camera/camera/color/image_raw"
            raise ParameterError(f"remap: expected from{ASSIGN}to as {example}, got {text!r:.80}")
        return cls(node, source, target)

    def __str__(self) -> str:
        return f"{self.node}:{self.source}{ASSIGN}{self.target}" if self.node else f"{self.source}{ASSIGN}{self.target}"

    def arguments(self) -> list[str]:
        """Of a node's command line, behind --ros-args."""
        return ["-r", str(self)]


def read_remaps(texts: Iterable[object]) -> tuple[RemapRule, ...]:
    """Raises ParameterError."""
    return tuple(RemapRule.read(text) for text in texts)


def absolute_name(name: str, namespace: str, node: str) -> str:
    """A relative, private (~/state) or absolute name as an absolute one. namespace: of the node, such as /left; empty:
    none."""
    plain = namespace.strip("/")
    for substitution, value in (("{node}", node), ("{ns}", plain), ("{namespace}", plain)):
        name = name.replace(substitution, value)
    if name.startswith("/"):
        return name
    parts = [plain, node, name[2:]] if name.startswith("~/") else [plain, name]
    return "/" + "/".join(part for part in parts if part)


def remapped(name: str, rules: Iterable[RemapRule], namespace: str, node: str) -> tuple[str, ...]:
    """An absolute name after remapping, by the first rule that fits, as ROS 2 does. A name with `*` stays, and the
    targets of all rules whose sources it stands for come beside it."""
    own = [rule for rule in rules if rule.node in ("", node)]
    sources = [absolute_name(rule.source, namespace, node) for rule in own]
    targets = [absolute_name(rule.target, namespace, node) for rule in own]
    if ANY in name:
        also = [target for source, target in zip(sources, targets, strict=True) if fnmatch.fnmatchcase(source, name)]
        return (name, *also)
    return (targets[sources.index(name)],) if name in sources else (name,)
