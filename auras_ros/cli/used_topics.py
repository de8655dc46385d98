"""The topics between a robot and a config's nodes, after parameters and remapping, for `auras check`.

It loads neither ROS nor a model: of a checkpoint only the manifest is read, for the names of its cameras. A test
compares it with what the nodes use (`endpoints`).
"""

from __future__ import annotations

from collections.abc import Iterable

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST, read_policy
from auras_ros.nodes.common.config import BRIDGE, NodeConfig
from auras_ros.topic_names import ANY, absolute_name, check_cameras, image_topic, remapped

ANY_CAMERA = "<name>"


def topic_lines(config: NodeConfig) -> list[str]:
    """For each node that the config starts a line of what it hears, and one of what it says. Raises ParameterError if
    `camera_topics` names a camera that the checkpoint does not have."""
    lines = []
    for executable in config.supervision.processes:
        node = config.supervision.node(executable)
        for verb, names in zip(("hears", "says "), topics_of(config, executable), strict=True):
            if names:
                lines.append(f"  {node} {verb} {', '.join(_used(config, node, names))}".replace(ANY, ANY_CAMERA))
    return lines


def topics_of(config: NodeConfig, executable: str) -> tuple[list[str], list[str]]:
    """What a process hears of a robot and its people, and what it says to them, as its nodes name it."""
    settings = config.settings(config.supervision.node(executable))
    if executable == "agent":
        cameras, topics = _cameras(settings.checkpoint), settings.topics_of_cameras()
        if cameras is not None:
            check_cameras("agent", topics, cameras)
        names = [*topics, ANY] if cameras is None else cameras
        images = [image_topic(name, topics, compressed=settings.compressed) for name in names]
        return [*images, settings.joint_states_topic, "prompt"], ["provenance"]
    if executable == "vlm":
        topics = settings.topics_of_cameras()
        images = [image_topic(name, topics, compressed=settings.compressed) for name in settings.camera_names()]
        return [*images, "question"], ["answer", "answer/stream"]
    if executable == BRIDGE:
        return ["action"], ["camera/*", "joint_states"]
    heard = [settings.joint_states_topic, "robot_description", *settings.emergency_stops]
    return heard, [*settings.command_topics, "~/state"]


def _used(config: NodeConfig, node: str, names: Iterable[str]) -> list[str]:
    rules = config.supervision.remaps
    return [used for name in names for used in remapped(absolute_name(name, "", node), rules, "", node)]


def _cameras(checkpoint: str) -> list[str] | None:
    """The names of a checkpoint's cameras; None if it is not here, or says them in another library's files."""
    try:
        path = resources.checkpoint(checkpoint) / MANIFEST
        return [camera["name"] for camera in read_policy(path)["observation"]["cameras"]] if path.is_file() else None
    except (CheckpointError, KeyError, OSError, TypeError):  # the agent says what is wrong with it
        return None
