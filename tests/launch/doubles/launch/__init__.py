"""Records what a launch file says, in the shapes of ROS 2's `launch`, which no package index has."""

from __future__ import annotations

from typing import Any


class LaunchDescription:
    def __init__(self, entities: list[Any]) -> None:
        self.entities = entities


class LaunchContext:
    """Values of the launch arguments, as `name:=value` on the command line sets them."""

    def __init__(self, **configurations: str) -> None:
        self.launch_configurations = configurations
