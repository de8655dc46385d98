"""The simulator's side: starts the bridges of a configuration, each in the place of a robot.

    ros2 launch auras_ros sim.launch.py config:=pusht namespace:=robot1

What runs, and with which parameters, stands in the YAML file that `auras run` reads too; the arguments here
say only where it is deployed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from auras_ros import resources
from launch import LaunchDescription

BRIDGE = "_bridge"  # executable `pusht_bridge` is node `pusht`
RESPAWN_DELAY_S = 1.0


def config_path(name: str) -> Path:
    """A path if there is such a file, else the name of a configuration that ships with the package."""
    path = Path(name).expanduser()
    if path.is_file():
        return path.resolve()
    return resources.find("config", name if name.endswith(".yaml") else f"{name}.yaml")


def own_section(sections: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The node's parameters once more: in a file, a plain name means a node of the root namespace alone."""
    return [sections[name]["ros__parameters"]] if name in sections else []


def nodes(context: Any) -> list[Node]:
    """The launch actions for the configuration and the namespace that the arguments name."""
    path = config_path(LaunchConfiguration("config").perform(context))
    sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    supervisor = sections["supervisor"]["ros__parameters"]
    names = {each: each.removesuffix(BRIDGE) for each in supervisor["processes"] if each.endswith(BRIDGE)}
    if not names:
        raise RuntimeError(f"{path}: supervisor.processes names no simulator bridge")
    return [
        Node(
            package="auras_ros",
            executable=executable,
            name=name,
            namespace=LaunchConfiguration("namespace"),
            parameters=[str(path), *own_section(sections, name)],
            output="screen",
            respawn=supervisor.get("respawn", True),
            respawn_delay=RESPAWN_DELAY_S,
        )
        for executable, name in names.items()
    ]


def generate_launch_description() -> LaunchDescription:
    """What `ros2 launch` asks for."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("config", default_value="pusht", description="YAML file or shipped name"),
            DeclareLaunchArgument("namespace", default_value="", description="namespace of every node"),
            OpaqueFunction(function=nodes),
        ]
    )
