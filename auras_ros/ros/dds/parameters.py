"""A node's parameters: declared before use, typed, ranged, and changed only where every callback agrees.

A refused set leaves every value as it was. Services for remote access are not here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .messages import message_type
from .parameter import Parameter

SetCallback = Callable[[list[Parameter]], Any]
_TYPES = Parameter.Type


class ParameterException(Exception):
    """Base of the refusals below; the message names the parameter."""


class ParameterAlreadyDeclaredException(ParameterException):
    pass


class ParameterNotDeclaredException(ParameterException):
    pass


class InvalidParameterTypeException(ParameterException):
    pass


class InvalidParameterValueException(ParameterException):
    pass


class ParameterUninitializedException(ParameterException):
    pass


class ParameterImmutableException(ParameterException):
    pass


def _result(reason: str = "") -> Any:
    return message_type("rcl_interfaces/msg/SetParametersResult")(successful=not reason, reason=reason)


class ParameterStore:
    """Declared parameters with their descriptors, the overrides waiting for declaration, and set callbacks."""

    def __init__(self, overrides: dict[str, Any], *, allow_undeclared: bool = False) -> None:
        self.overrides = dict(overrides)
        self._allow_undeclared = allow_undeclared
        self._values: dict[str, Parameter] = {}
        self._descriptors: dict[str, Any] = {}
        self._callbacks: list[SetCallback] = []
        self._lock = threading.RLock()

    def declare(self, name: str, value: Any, descriptor: Any, ignore_override: bool) -> Parameter:
        """Declare one parameter; `value` is a default, a Parameter.Type without one, or None (dynamic).

        Raises one of the exceptions above and declares nothing where the default or the override is refused.
        """
        if not isinstance(name, str) or not name:
            raise InvalidParameterValueException(f"parameter name {name!r} must be a non-empty string")
        with self._lock:
            if name in self._values:
                raise ParameterAlreadyDeclaredException(f"parameter {name} is already declared")
            static = value if isinstance(value, Parameter.Type) else _kind(name, value)
            default = None if isinstance(value, Parameter.Type) else value
            source = default if ignore_override else self.overrides.get(name, default)
            made = message_type("rcl_interfaces/msg/ParameterDescriptor")(name=name, type=static.value)
            if descriptor is not None:
                for field in ("description", "additional_constraints", "read_only", "dynamic_typing"):
                    setattr(made, field, getattr(descriptor, field))
                made.floating_point_range = list(descriptor.floating_point_range)
                made.integer_range = list(descriptor.integer_range)
            if static is _TYPES.NOT_SET and not made.dynamic_typing and source is not None:
                static = _kind(name, source)
                made.type = static.value
            parameter = _typed(name, source, static, made)
            self._descriptors[name], self._values[name] = made, Parameter(name)
            reason = "" if source is None else self._refusal([parameter], initial=True)
            if reason:
                del self._descriptors[name], self._values[name]
                raise InvalidParameterValueException(f"parameter {name} = {source!r}: {reason}")
            self._values[name] = parameter
            return parameter

    def undeclare(self, name: str) -> None:
        with self._lock:
            self.get(name)
            if self._descriptors[name].read_only:
                raise ParameterImmutableException(f"parameter {name} is read-only")
            del self._values[name], self._descriptors[name]

    def has(self, name: str) -> bool:
        return name in self._values

    def settable(self, name: str) -> bool:
        return self._allow_undeclared or name in self._values

    def names(self) -> list[str]:
        return sorted(self._values)

    def get(self, name: str) -> Parameter:
        """The parameter; raises where it is not declared, or declared with a type and never given a value."""
        if name not in self._values:
            if self._allow_undeclared:
                return Parameter(name)
            raise ParameterNotDeclaredException(f"parameter {name} is not declared")
        parameter = self._values[name]
        descriptor = self._descriptors[name]
        if parameter.type_ is _TYPES.NOT_SET and descriptor.type and not descriptor.dynamic_typing:
            raise ParameterUninitializedException(f"parameter {name} has no value; give it one")
        return parameter

    def describe(self, name: str) -> Any:
        if name not in self._descriptors:
            raise ParameterNotDeclaredException(f"parameter {name} is not declared")
        return self._descriptors[name]

    def add_callback(self, callback: SetCallback) -> None:
        self._callbacks.insert(0, callback)

    def remove_callback(self, callback: SetCallback) -> None:
        self._callbacks.remove(callback)

    def set_atomically(self, parameters: Sequence[Parameter]) -> Any:
        """All of them or none: a SetParametersResult with the first reason where it is refused."""
        with self._lock:
            for parameter in parameters:
                if not self.settable(parameter.name):
                    raise ParameterNotDeclaredException(f"parameter {parameter.name} is not declared")
                if parameter.name not in self._values:
                    self.declare(parameter.name, None, None, ignore_override=True)
            reason = self._refusal(parameters)
            if not reason:
                self._values.update({parameter.name: parameter for parameter in parameters})
            return _result(reason)

    def _refusal(self, parameters: Sequence[Parameter], *, initial: bool = False) -> str:
        for parameter in parameters:
            descriptor = self._descriptors[parameter.name]
            if descriptor.read_only and not initial:
                return f"parameter {parameter.name} is read-only"
            reason = _type_refusal(parameter, descriptor) or _range_refusal(parameter, descriptor)
            if reason:
                return reason
        for callback in list(self._callbacks):
            result = callback(list(parameters))
            if not result.successful:
                return result.reason or "refused by a set-parameters callback"
        return ""


def _kind(name: str, value: Any) -> Parameter.Type:
    try:
        return Parameter.Type.from_parameter_value(value)
    except TypeError as error:
        raise InvalidParameterTypeException(f"parameter {name}: {error}") from None


def _typed(name: str, value: Any, static: Parameter.Type, descriptor: Any) -> Parameter:
    if value is None:
        return Parameter(name)
    if descriptor.dynamic_typing or static is _TYPES.NOT_SET:
        return Parameter(name, _kind(name, value), value)
    if not static.check(value):
        hint = f"; write {value}.0" if static is _TYPES.DOUBLE and type(value) is int else ""
        raise InvalidParameterTypeException(
            f"parameter {name} is {static.name}, got {_kind(name, value).name} {value!r}{hint}"
        )
    return Parameter(name, static, value)


def _type_refusal(parameter: Parameter, descriptor: Any) -> str:
    if descriptor.dynamic_typing or descriptor.type in (0, parameter.type_.value):
        return ""
    wanted = Parameter.Type(descriptor.type)
    if parameter.type_ is not _TYPES.NOT_SET and wanted.check(parameter.value):
        return ""
    return f"parameter {parameter.name} is {wanted.name}, got {parameter.type_.name}"


def _range_refusal(parameter: Parameter, descriptor: Any) -> str:
    if parameter.type_ is _TYPES.INTEGER:
        ranges, tolerance = descriptor.integer_range, 0.0
    elif parameter.type_ is _TYPES.DOUBLE:
        ranges, tolerance = descriptor.floating_point_range, 1e-9
    else:
        return ""
    for allowed in ranges:
        low, high, step, value = allowed.from_value, allowed.to_value, allowed.step, parameter.value
        # Written so that NaN, which compares false with everything, is refused.
        if not low <= value <= high:
            return f"parameter {parameter.name} = {value} is outside {low} … {high}"
        on_grid = not step or value == high or abs((value - low) / step - round((value - low) / step)) <= tolerance
        if not on_grid:
            return f"parameter {parameter.name} = {value} is not {low} plus a multiple of {step}"
    return ""


def as_overrides(parameters: Iterable[Parameter] | None) -> dict[str, Any]:
    """Name → value of the overrides handed to a node's constructor."""
    return {parameter.name: parameter.value for parameter in parameters or ()}
