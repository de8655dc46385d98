"""A node's parameters: declared before use, typed, ranged, and changed only where every callback agrees.

A refused set leaves every value as it was. What changed is told to `changed`, then to the post-set callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .exceptions import (
    InvalidParameterValueException,
    ParameterAlreadyDeclaredException,
    ParameterImmutableException,
    ParameterNotDeclaredException,
    ParameterUninitializedException,
)
from .messages import message_type
from .parameter import Parameter
from .parameter_rules import kind, range_refusal, type_refusal, typed

SetCallback = Callable[[list[Parameter]], Any]
PreSetCallback = Callable[[list[Parameter]], list[Parameter]]
PostSetCallback = Callable[[list[Parameter]], None]
_TYPES = Parameter.Type
_COPIED = ("description", "additional_constraints", "read_only", "dynamic_typing")


@dataclass
class Changes:
    """One set or declaration: parameters that got their first value, another one, or none any more."""

    new: list[Parameter] = field(default_factory=list)
    changed: list[Parameter] = field(default_factory=list)
    deleted: list[Parameter] = field(default_factory=list)


def refused(reason: str = "") -> Any:
    """A SetParametersResult: successful without a reason."""
    return message_type("rcl_interfaces/msg/SetParametersResult")(successful=not reason, reason=reason)


class ParameterStore:
    """Declared parameters with their descriptors, the overrides waiting for declaration, and set callbacks."""

    def __init__(
        self, overrides: dict[str, Any], changed: Callable[[Changes], None], *, allow_undeclared: bool = False
    ) -> None:
        self.overrides = dict(overrides)
        self.allow_undeclared = allow_undeclared
        self.pre_callbacks: list[PreSetCallback] = []
        self.on_callbacks: list[SetCallback] = []
        self.post_callbacks: list[PostSetCallback] = []
        self._changed = changed
        self._values: dict[str, Parameter] = {}
        self._descriptors: dict[str, Any] = {}
        self._lock = threading.RLock()

    def declare(self, name: str, value: Any, descriptor: Any, ignore_override: bool) -> Parameter:
        """Declare one parameter; `value` is a default, a Parameter.Type without one, or None (dynamic typing).

        Raises one of rclpy's exceptions and declares nothing where the default or the override is refused.
        """
        if not isinstance(name, str) or not name:
            raise InvalidParameterValueException(f"parameter name {name!r} must be a non-empty string")
        with self._lock:
            if name in self._values:
                raise ParameterAlreadyDeclaredException(f"parameter {name} is already declared")
            made, static = _described(name, value, descriptor)
            default = None if isinstance(value, Parameter.Type) else value
            source = default if ignore_override else self.overrides.get(name, default)
            parameter = typed(name, source, static, made)
            # Callbacks may look at the parameter, which has no value yet.
            self._descriptors[name], self._values[name] = made, Parameter(name)
            reason = "refused by a callback that raised"
            try:
                reason = "" if source is None else self._refusal([parameter], initial=True)
            finally:
                if reason:
                    del self._descriptors[name], self._values[name]
            if reason:
                raise InvalidParameterValueException(f"parameter {name} = {source!r}: {reason}")
            self._store([parameter], keep_unset=True)
            return parameter

    def undeclare(self, name: str) -> None:
        with self._lock:
            if name not in self._values:
                raise ParameterNotDeclaredException(f"parameter {name} is not declared")
            if self._descriptors[name].read_only:
                raise ParameterImmutableException(f"parameter {name} is read-only")
            del self._values[name], self._descriptors[name]
            self._changed(Changes(deleted=[Parameter(name)]))

    def has(self, name: str) -> bool:
        return name in self._values

    def settable(self, name: str) -> bool:
        return self.allow_undeclared or name in self._values

    def names(self) -> list[str]:
        """In the order of their declaration."""
        return list(self._values)

    def get(self, name: str) -> Parameter:
        """The parameter; raises where it is not declared, or declared with a type and never given a value."""
        with self._lock:
            if name not in self._values:
                if self.allow_undeclared:
                    return Parameter(name)
                raise ParameterNotDeclaredException(f"parameter {name} is not declared")
            parameter = self._values[name]
            if parameter.type_ is _TYPES.NOT_SET and not self._descriptors[name].dynamic_typing:
                raise ParameterUninitializedException(f"parameter {name} has no value; give it one")
            return parameter

    def type_of(self, name: str) -> Parameter.Type:
        """The type of the value, NOT_SET where it has none yet."""
        with self._lock:
            if not self.settable(name):
                raise ParameterNotDeclaredException(f"parameter {name} is not declared")
            return self._values.get(name, Parameter(name)).type_

    def describe(self, name: str) -> Any:
        with self._lock:
            if name in self._descriptors:
                return self._descriptors[name]
            if self.allow_undeclared:
                return message_type("rcl_interfaces/msg/ParameterDescriptor")()
            raise ParameterNotDeclaredException(f"parameter {name} is not declared")

    def set_atomically(self, parameters: Sequence[Parameter]) -> Any:
        """All of them or none: a SetParametersResult with the first reason where it is refused."""
        with self._lock:
            wanted = list(parameters)
            if self.pre_callbacks:
                wanted = [made for callback in list(self.pre_callbacks) for made in callback(list(parameters))]
                if not wanted:
                    return refused("a pre-set-parameters callback left nothing to set")
            for parameter in wanted:
                if not self.settable(parameter.name):
                    raise ParameterNotDeclaredException(f"parameter {parameter.name} is not declared")
            reason = self._refusal(wanted)
            if not reason:
                self._store(wanted, keep_unset=False)
            return refused(reason)

    def _store(self, parameters: list[Parameter], *, keep_unset: bool) -> None:
        """Take agreed values; one without a value deletes its parameter unless it is being declared."""
        changes = Changes()
        for parameter in parameters:
            name = parameter.name
            if parameter.type_ is _TYPES.NOT_SET and not keep_unset:
                self._values.pop(name, None)
                self._descriptors.pop(name, None)
                changes.deleted.append(parameter)
                continue
            before, after = self._values.get(name), self._fitted(parameter)
            is_new = before is None or before.type_ is _TYPES.NOT_SET
            (changes.new if is_new else changes.changed).append(after)
            self._values[name] = after
        self._changed(changes)
        for callback in list(self.post_callbacks):
            callback(list(parameters))

    def _fitted(self, parameter: Parameter) -> Parameter:
        """The parameter in its declared type; a dynamic one's descriptor takes the type of the value."""
        name, kind_of_value = parameter.name, parameter.type_
        if name not in self._descriptors:  # undeclared parameters are allowed here
            self._descriptors[name] = _described(name, None, None)[0]
        descriptor = self._descriptors[name]
        if descriptor.dynamic_typing:
            descriptor.type = kind_of_value.value
        elif kind_of_value not in (_TYPES.NOT_SET, _TYPES(descriptor.type)):  # an empty list fits every array type
            return Parameter(name, _TYPES(descriptor.type), parameter.value)
        return parameter

    def _refusal(self, parameters: list[Parameter], *, initial: bool = False) -> str:
        for parameter in parameters:
            descriptor = self._descriptors.get(parameter.name)
            if descriptor is None:  # to be declared by this set
                continue
            if descriptor.read_only and not initial:
                return f"parameter {parameter.name} is read-only"
            reason = type_refusal(parameter, descriptor) or range_refusal(parameter, descriptor)
            if reason:
                return reason
        for callback in list(self.on_callbacks):
            result = callback(list(parameters))
            if not result.successful:
                return result.reason or "refused by a set-parameters callback"
        return ""


def _described(name: str, value: Any, descriptor: Any) -> tuple[Any, Parameter.Type]:
    """A parameter's own copy of its descriptor, and its static type (NOT_SET where it is dynamic)."""
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
            raise ValueError(f"parameter {name}: dynamic typing and a type were both asked for")
        return made, _TYPES.NOT_SET
    if static is _TYPES.NOT_SET:
        raise ValueError(f"parameter {name}: needs a default, a type, or a descriptor with dynamic_typing")
    made.type = static.value
    return made, static
