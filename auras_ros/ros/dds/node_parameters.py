"""The parameter methods of a node, as rclpy names them; `ParameterStore` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .exceptions import ParameterNotDeclaredException
from .messages import message_type
from .parameter import Parameter
from .parameters import ParameterStore, PostSetCallback, PreSetCallback, SetCallback

DEPTH_RECURSIVE = 0


class NodeParameters:
    """Mixed into Node; needs `_parameters`."""

    _parameters: ParameterStore

    @property
    def _parameter_overrides(self) -> dict[str, Parameter]:
        """What was given at the start, declared or not; rclpy keeps it under this name."""
        return {name: Parameter(name, value=value) for name, value in self._parameters.overrides.items()}

    def declare_parameter(
        self, name: str, value: Any = None, descriptor: Any = None, ignore_override: bool = False
    ) -> Parameter:
        """Declare one parameter with a default, or with a Parameter.Type and no default.

        Raises ParameterAlreadyDeclaredException, InvalidParameterTypeException (an override of another type)
        or InvalidParameterValueException (out of range, or refused by a callback).
        """
        return self._parameters.declare(name, value, descriptor, ignore_override)

    def declare_parameters(self, namespace: str, parameters: Sequence[tuple[Any, ...]]) -> list[Parameter]:
        """Declare (name, default[, descriptor]) tuples under a prefix."""
        prefix = f"{namespace}." if namespace else ""
        return [self.declare_parameter(prefix + name, *rest) for name, *rest in parameters]

    def undeclare_parameter(self, name: str) -> None:
        self._parameters.undeclare(name)

    def has_parameter(self, name: str) -> bool:
        return self._parameters.has(name)

    def get_parameter(self, name: str) -> Parameter:
        """The parameter; ParameterNotDeclaredException or ParameterUninitializedException where there is none."""
        return self._parameters.get(name)

    def get_parameters(self, names: Sequence[str]) -> list[Parameter]:
        return [self.get_parameter(name) for name in names]

    def get_parameter_or(self, name: str, alternative_value: Parameter | None = None) -> Parameter:
        """The parameter, or the alternative where it is not declared or has no value."""
        if self.has_parameter(name) and self._parameters.type_of(name) is not Parameter.Type.NOT_SET:
            return self.get_parameter(name)
        return alternative_value if alternative_value is not None else Parameter(name)

    def get_parameter_type(self, name: str) -> int:
        """The number of the value's Parameter.Type, 0 where it has none yet (as rclpy)."""
        return int(self._parameters.type_of(name).value)

    def get_parameter_types(self, names: Sequence[str]) -> list[int]:
        return [self.get_parameter_type(name) for name in names]

    def get_parameters_by_prefix(self, prefix: str) -> dict[str, Parameter]:
        """The declared parameters under `prefix.`, by the rest of their names; all for an empty prefix."""
        start = f"{prefix}." if prefix else ""
        return {name[len(start) :]: self.get_parameter(name)
                for name in self._parameters.names() if name.startswith(start)}  # fmt: skip

    def describe_parameter(self, name: str) -> Any:
        """The rcl_interfaces/ParameterDescriptor."""
        return self._parameters.describe(name)

    def describe_parameters(self, names: Sequence[str]) -> list[Any]:
        return [self.describe_parameter(name) for name in names]

    def list_parameters(self, prefixes: Sequence[str], depth: int) -> Any:
        """The rcl_interfaces/ListParametersResult of names under any prefix, `depth` levels deep (0: all).

        As rclpy: a prefix names itself and what lies below it; without prefixes every name is meant.
        """
        if depth < 0:
            raise ValueError(f"list_parameters: depth {depth} is negative")
        result = message_type("rcl_interfaces/msg/ListParametersResult")()
        for name in self._parameters.names():
            below = [name[len(prefix) + 1 :] for prefix in prefixes if name.startswith(f"{prefix}.")]
            below += [] if prefixes else [name]
            if name in prefixes or any(depth == DEPTH_RECURSIVE or rest.count(".") < depth for rest in below):
                result.names.append(name)
                group = name.rpartition(".")[0]
                if group and group not in result.prefixes:
                    result.prefixes.append(group)
        return result

    def set_parameters(self, parameter_list: Sequence[Parameter]) -> list[Any]:
        """Set one after another; a SetParametersResult each. A refused one keeps its old value."""
        for parameter in parameter_list:
            if not self._parameters.settable(parameter.name):
                raise ParameterNotDeclaredException(f"parameter {parameter.name} is not declared")
        return [self._parameters.set_atomically([parameter]) for parameter in parameter_list]

    def set_parameters_atomically(self, parameter_list: Sequence[Parameter]) -> Any:
        """Set all or none; one SetParametersResult."""
        return self._parameters.set_atomically(parameter_list)

    def add_pre_set_parameters_callback(self, callback: PreSetCallback) -> None:
        """Have `callback(parameters) -> parameters` choose what is set; the newest is asked first."""
        self._parameters.pre_callbacks.insert(0, callback)

    def add_on_set_parameters_callback(self, callback: SetCallback) -> None:
        """Have `callback(parameters) -> SetParametersResult` agree before a set; the newest is asked first."""
        self._parameters.on_callbacks.insert(0, callback)

    def add_post_set_parameters_callback(self, callback: PostSetCallback) -> None:
        """Call `callback(parameters)` after a set that was agreed to."""
        self._parameters.post_callbacks.insert(0, callback)

    def remove_pre_set_parameters_callback(self, callback: PreSetCallback) -> None:
        self._parameters.pre_callbacks.remove(callback)

    def remove_on_set_parameters_callback(self, callback: SetCallback) -> None:
        self._parameters.on_callbacks.remove(callback)

    def remove_post_set_parameters_callback(self, callback: PostSetCallback) -> None:
        self._parameters.post_callbacks.remove(callback)
