"""A node's parameters, with the methods of rclpy's nodes: declared before use, with type and range, and changed only
if every callback agrees.

If setting is refused, every value stays as it was. Changes are reported to `changed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .exceptions import (
    InvalidParameterValueException,
    ParameterAlreadyDeclaredException,
    ParameterNotDeclaredException,
    ParameterUninitializedException,
)
from .messages import message_type
from .parameter import Parameter
from .parameter_rules import kind, range_refusal, type_refusal, typed

SetCallback = Callable[[list[Parameter]], Any]
_TYPES = Parameter.Type
DEPTH_RECURSIVE = 0
_COPIED = ("description", "additional_constraints", "read_only", "dynamic_typing")


@dataclass
class Changes:
    """The result of one set or declaration: parameters with their first value, with another value, and deleted ones."""

    new: list[Parameter] = field(default_factory=list)
    changed: list[Parameter] = field(default_factory=list)
    deleted: list[Parameter] = field(default_factory=list)


def refused(reason: str = "") -> Any:
    """A SetParametersResult: successful if there is no reason."""
    return message_type("rcl_interfaces/msg/SetParametersResult")(successful=not reason, reason=reason)


class NodeParameters:
    """Mixed into Node: declared parameters with their descriptors, the given overrides, and set callbacks. Its
    attributes have long names, because subclasses of Node add their own."""

    def _init_parameters(
        self, overrides: dict[str, Any], changed: Callable[[Changes], None], allow_undeclared: bool
    ) -> None:
        # The parameters given at the start, declared or not; rclpy keeps them under this name.
        self._parameter_overrides = {name: Parameter(name, value=value) for name, value in overrides.items()}
        self._parameter_callbacks: list[SetCallback] = []
        self._parameters_changed, self._allow_undeclared = changed, allow_undeclared
        self._parameter_values: dict[str, Parameter] = {}
        self._parameter_descriptors: dict[str, Any] = {}
        self._parameter_lock = threading.RLock()

    def declare_parameter(
        self, name: str, value: Any = None, descriptor: Any = None, ignore_override: bool = False
    ) -> Parameter:
        """Declare one parameter; `value` is a default, a Parameter.Type without one, or None (dynamic typing).

        Raises ParameterAlreadyDeclaredException, InvalidParameterTypeException (an override of another type) or
        InvalidParameterValueException (out of range, or refused by a callback); then nothing is declared.
        """
        if not isinstance(name, str) or not name:
            raise InvalidParameterValueException(f"parameter name {name!r} must be a non-empty string")
        with self._parameter_lock:
            if name in self._parameter_values:
                raise ParameterAlreadyDeclaredException(f"parameter {name} is already declared")
            made, static = _described(name, value, descriptor)
            source = None if isinstance(value, Parameter.Type) else value
            if not ignore_override and name in self._parameter_overrides:
                source = self._parameter_overrides[name].value
            parameter = typed(name, source, static, made)
            # Callbacks may read the parameter, which has no value yet.
            self._parameter_descriptors[name], self._parameter_values[name] = made, Parameter(name)
            reason = "refused by a callback that raised"
            try:
                reason = "" if source is None else self._parameter_refusal([parameter], initial=True)
            finally:
                if reason:
                    del self._parameter_descriptors[name], self._parameter_values[name]
            if reason:
                raise InvalidParameterValueException(f"parameter {name} = {source!r}: {reason}")
            self._store_parameters([parameter], keep_unset=True)
            return parameter

    def declare_parameters(self, namespace: str, parameters: Sequence[tuple[Any, ...]]) -> list[Parameter]:
        """Declare (name, default[, descriptor]) tuples under a prefix."""
        prefix = f"{namespace}." if namespace else ""
        return [self.declare_parameter(prefix + name, *rest) for name, *rest in parameters]

    def has_parameter(self, name: str) -> bool:
        return name in self._parameter_values

    def get_parameter(self, name: str) -> Parameter:
        """The parameter. Raises if it is not declared, or if it was declared with a type and has no value yet."""
        with self._parameter_lock:
            parameter, descriptor = self._declared(name)
            if parameter.type_ is _TYPES.NOT_SET and not descriptor.dynamic_typing:
                raise ParameterUninitializedException(f"parameter {name} has no value; give it one")
            return parameter

    def get_parameter_or(self, name: str, alternative_value: Parameter | None = None) -> Parameter:
        """The parameter, or the alternative if it is not declared or has no value."""
        if self.has_parameter(name) and self.get_parameter_type(name):
            return self.get_parameter(name)
        return alternative_value if alternative_value is not None else Parameter(name)

    def get_parameter_type(self, name: str) -> int:
        """The number of the value's Parameter.Type, 0 if it has no value yet (as rclpy)."""
        return int(self._declared(name)[0].type_.value)

    def describe_parameter(self, name: str) -> Any:
        """The rcl_interfaces/ParameterDescriptor."""
        return self._declared(name)[1]

    def list_parameters(self, prefixes: Sequence[str], depth: int) -> Any:
        """The rcl_interfaces/ListParametersResult of names under any prefix, `depth` levels deep (0: all).

        As rclpy: a prefix selects the parameter of that name and all below it; no prefixes select every name.
        """
        if depth < 0:
            raise ValueError(f"list_parameters: depth {depth} is negative")
        result = message_type("rcl_interfaces/msg/ListParametersResult")()
        for name in self._parameter_values:
            below = [name[len(prefix) + 1 :] for prefix in prefixes if name.startswith(f"{prefix}.")]
            below += [] if prefixes else [name]
            if name in prefixes or any(depth == DEPTH_RECURSIVE or rest.count(".") < depth for rest in below):
                result.names.append(name)
                group = name.rpartition(".")[0]
                if group and group not in result.prefixes:
                    result.prefixes.append(group)
        return result

    def set_parameters(self, parameter_list: Sequence[Parameter]) -> list[Any]:
        """Set one after another; returns a SetParametersResult for each. A refused one keeps its old value."""
        for parameter in parameter_list:
            self._declared(parameter.name)
        return [self.set_parameters_atomically([parameter]) for parameter in parameter_list]

    def set_parameters_atomically(self, parameter_list: Sequence[Parameter]) -> Any:
        """Set all of them or none. Returns a SetParametersResult, with the first reason if it is refused."""
        with self._parameter_lock:
            wanted = list(parameter_list)
            for parameter in wanted:
                self._declared(parameter.name)
            reason = self._parameter_refusal(wanted)
            if not reason:
                self._store_parameters(wanted, keep_unset=False)
            return refused(reason)

    def add_on_set_parameters_callback(self, callback: SetCallback) -> None:
        """Call `callback(parameters) -> SetParametersResult`, which may refuse, before each set; the newest first."""
        self._parameter_callbacks.insert(0, callback)

    def _declared(self, name: str) -> tuple[Parameter, Any]:
        """The parameter and its descriptor."""
        with self._parameter_lock:
            if name not in self._parameter_values:
                if self._allow_undeclared:
                    return Parameter(name), _described(name, None, None)[0]
                raise ParameterNotDeclaredException(f"parameter {name} is not declared")
            return self._parameter_values[name], self._parameter_descriptors[name]

    def _store_parameters(self, parameters: list[Parameter], *, keep_unset: bool) -> None:
        """Store accepted values; one without a value deletes its parameter, unless it is being declared."""
        changes = Changes()
        for parameter in parameters:
            name = parameter.name
            if parameter.type_ is _TYPES.NOT_SET and not keep_unset:
                self._parameter_values.pop(name, None)
                self._parameter_descriptors.pop(name, None)
                changes.deleted.append(parameter)
                continue
            before, after = self._parameter_values.get(name), self._fitted_parameter(parameter)
            is_new = before is None or before.type_ is _TYPES.NOT_SET
            (changes.new if is_new else changes.changed).append(after)
            self._parameter_values[name] = after
        self._parameters_changed(changes)

    def _fitted_parameter(self, parameter: Parameter) -> Parameter:
        """The parameter with its declared type; if it is dynamic, its descriptor gets the type of the value."""
        name, kind_of_value = parameter.name, parameter.type_
        if name not in self._parameter_descriptors:  # undeclared ones are allowed, or this same set deleted it
            self._parameter_descriptors[name] = _described(name, None, None)[0]
        descriptor = self._parameter_descriptors[name]
        if descriptor.dynamic_typing:
            descriptor.type = kind_of_value.value
        elif kind_of_value not in (_TYPES.NOT_SET, _TYPES(descriptor.type)):  # an empty list fits every array type
            return Parameter(name, _TYPES(descriptor.type), parameter.value)
        return parameter

    def _parameter_refusal(self, parameters: list[Parameter], *, initial: bool = False) -> str:
        for parameter in parameters:
            descriptor = self._declared(parameter.name)[1]
            if descriptor.read_only and not initial:
                why = f": {descriptor.additional_constraints}" if descriptor.additional_constraints else ""
                return f"parameter {parameter.name} is read-only{why}"
            reason = type_refusal(parameter, descriptor) or range_refusal(parameter, descriptor)
            if reason:
                return reason
        for callback in list(self._parameter_callbacks):
            result = callback(list(parameters))
            if not result.successful:
                return result.reason or "refused by a set-parameters callback"
        return ""


def _described(name: str, value: Any, descriptor: Any) -> tuple[Any, Parameter.Type]:
    """A parameter's own copy of its descriptor, and its static type (NOT_SET if it is dynamic)."""
    made = message_type("rcl_interfaces/msg/ParameterDescriptor")(name=name)
    if descriptor is not None:
        for copied in _COPIED:
            setattr(made, copied, getattr(descriptor, copied))
        made.floating_point_range = list(descriptor.floating_point_range)
        made.integer_range = list(descriptor.integer_range)
    elif value is None:
        made.dynamic_typing = True
    static = value if isinstance(value, Parameter.Type) else kind(name, value)
    if made.dynamic_typing:
        if isinstance(value, Parameter.Type):
            raise ValueError(f"parameter {name}: both dynamic typing and a type are given")
        return made, _TYPES.NOT_SET
    if static is _TYPES.NOT_SET:
        raise ValueError(f"parameter {name}: needs a default, a type, or a descriptor with dynamic_typing")
    made.type = static.value
    return made, static
