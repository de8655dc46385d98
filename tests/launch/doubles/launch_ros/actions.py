from __future__ import annotations

from typing import Any

from launch.actions import ExecuteProcess

from launch import LaunchContext, checked


def text(value: Any) -> bool:
    return isinstance(value, str)


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def seconds(value: Any) -> bool:
    return isinstance(value, float)


def texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(text, value))


def parameters(value: Any) -> bool:
    """Files and dictionaries of values that a parameter may have; launch_ros refuses None and dictionaries in them."""
    kinds = (str, int, float, bool, list)
    return isinstance(value, list) and all(
        isinstance(each, str) or (isinstance(each, dict) and all(isinstance(v, kinds) for v in each.values()))
        for each in value
    )


NODE = {
    "executable": text, "package": text, "name": text, "namespace": text, "exec_name": text, "parameters": parameters,
    "remappings": lambda value: all(len(each) == 2 for each in value), "ros_arguments": texts, "arguments": texts,
}  # fmt: skip
PROCESS = {
    "output": lambda value: value in ("screen", "log", "both", "own_log", "full"), "respawn": flag,
    "respawn_delay": seconds, "emulate_tty": flag, "additional_env": lambda value: isinstance(value, dict),
    "prefix": text, "sigterm_timeout": text, "sigkill_timeout": text, "shell": flag, "cwd": text,
}  # fmt: skip


class Node(ExecuteProcess):
    def __init__(self, **given: Any) -> None:
        values = checked(type(self).__name__, given, {**NODE, **PROCESS})
        if "executable" not in values:
            raise TypeError(f"{type(self).__name__}: missing keyword argument 'executable'")
        self.package, self.executable = values.get("package"), values["executable"]
        self.name, self.namespace = values.get("name"), values.get("namespace", "")
        self.parameters: list[Any] = values.get("parameters", [])
        self.ros_arguments: list[str] = values.get("ros_arguments", [])
        self.arguments: list[str] = values.get("arguments", [])
        self.output, self.respawn = values.get("output", "log"), values.get("respawn", False)
        self.respawn_delay, self.prefix = values.get("respawn_delay"), values.get("prefix")
        self.additional_env: dict[str, str] = values.get("additional_env", {})
        self._node_name: str | None = None

    @property
    def node_name(self) -> str:
        """The full name, known once the action was executed."""
        if self._node_name is None:
            raise RuntimeError("cannot access 'node_name' before executing action")
        return self._node_name

    def execute(self, context: LaunchContext) -> None:
        self._node_name = "/".join(["", *filter(None, [self.namespace.strip("/")]), str(self.name)])
        super().execute(context)


class LifecycleNode(Node):
    def __init__(self, *, name: str, namespace: str, **given: Any) -> None:
        super().__init__(name=name, namespace=namespace, **given)
