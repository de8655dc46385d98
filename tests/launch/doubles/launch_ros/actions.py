from __future__ import annotations

from typing import Any


class Node:
    """Takes the arguments of launch_ros' Node that our files use, and no other."""

    def __init__(
        self,
        *,
        package: str,
        executable: str,
        name: str | None = None,
        namespace: Any = None,
        parameters: list[Any] | None = None,
        output: str = "log",
        respawn: bool = False,
        respawn_delay: float = 0.0,
    ) -> None:
        self.package, self.executable, self.name, self.namespace = package, executable, name, namespace
        self.parameters = parameters or []
        self.output, self.respawn, self.respawn_delay = output, respawn, respawn_delay
