"""The parameters of rclpy.node.Node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy_recording import refuse, strict

from .parameter import Parameter
from .parameters import Parameters


@strict
class Declared:
    KNOWN_AS = "rclpy.node.Node"
    _double_parameters: Parameters

    @property
    def _parameter_overrides(self) -> dict[str, Parameter]:
        """To be read alone: rclpy 7.1 keeps under this name what was given at the start."""
        return {name: Parameter(name, value=value) for name, value in self._double_parameters.overrides.items()}

    def declare_parameter(
        self, name: str, value: Any = None, descriptor: Any = None, ignore_override: bool = False
    ) -> Parameter:
        from rcl_interfaces.msg import ParameterDescriptor

        if not isinstance(descriptor, (ParameterDescriptor, type(None))):
            refuse(f"rclpy.node.Node.declare_parameter: {name}: descriptor {descriptor!r}")
        return self._double_parameters.declare(name, value, descriptor, ignore_override)

    def declare_parameters(
        self, namespace: str, parameters: list[Any], ignore_override: bool = False
    ) -> list[Parameter]:
        prefix = f"{namespace}." if namespace else ""
        return [self.declare_parameter(prefix + name, *rest) for name, *rest in parameters]

    def has_parameter(self, name: str) -> bool:
        return name in self._double_parameters.values

    def get_parameter(self, name: str) -> Parameter:
        return self._double_parameters.get(name)

    def get_parameters(self, names: list[str]) -> list[Parameter]:
        return [self._double_parameters.get(name) for name in names]

    def get_parameter_or(self, name: str, alternative_value: Parameter | None = None) -> Parameter:
        missing = alternative_value or Parameter(name, Parameter.Type.NOT_SET)
        return self._double_parameters.values.get(name, missing)

    def set_parameters(self, parameter_list: list[Parameter]) -> list[Any]:
        return [self._double_parameters.set_atomically([each]) for each in parameter_list]

    def set_parameters_atomically(self, parameter_list: list[Parameter]) -> Any:
        return self._double_parameters.set_atomically(parameter_list)

    def describe_parameter(self, name: str) -> Any:
        return self._double_parameters.descriptors[self._double_parameters.get(name).name]

    def describe_parameters(self, names: list[str]) -> list[Any]:
        return [self.describe_parameter(name) for name in names]

    def undeclare_parameter(self, name: str) -> None:
        del self._double_parameters.values[self._double_parameters.get(name).name]

    def add_on_set_parameters_callback(self, callback: Callable[..., Any]) -> None:
        self._double_parameters.callbacks.insert(0, callback)

    def remove_on_set_parameters_callback(self, callback: Callable[..., Any]) -> None:
        self._double_parameters.callbacks.remove(callback)
