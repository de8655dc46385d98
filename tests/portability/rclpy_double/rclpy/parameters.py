"""A node's parameters: rclpy keeps them in Node itself; here they stand apart for length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy_recording import refuse

from .exceptions import (
    InvalidParameterTypeException,
    InvalidParameterValueException,
    ParameterAlreadyDeclaredException,
    ParameterNotDeclaredException,
    ParameterUninitializedException,
)
from .parameter import Parameter


def _bad(reason: str) -> Any:
    return SetParametersResult(successful=False, reason=reason)


class Parameters:
    """The values, the descriptors and the callbacks."""

    def __init__(self, overrides: dict[str, Any]) -> None:
        self.overrides = overrides
        self.values: dict[str, Parameter] = {}
        self.descriptors: dict[str, Any] = {}
        self.callbacks: list[Callable[[list[Parameter]], Any]] = []

    def declare(self, name: str, default: Any, descriptor: Any, ignore_override: bool) -> Parameter:
        descriptor = ParameterDescriptor(dynamic_typing=default is None) if descriptor is None else descriptor
        if name in self.values:
            raise ParameterAlreadyDeclaredException([name])
        value = default
        if isinstance(default, Parameter.Type):
            descriptor.type, value = default.value, None
        elif not descriptor.dynamic_typing:
            descriptor.type = Parameter.Type.from_parameter_value(default).value
            if not descriptor.type:
                raise ValueError(f"{name}: a statically typed parameter needs a default value")
        if not ignore_override:
            value = self.overrides.get(name, value)
        parameter = Parameter(name, value=value)
        result = self._judge([parameter], {name: descriptor}, declaring=True)
        if not result.successful:
            if result.reason.startswith("Wrong parameter type"):
                raise InvalidParameterTypeException(parameter, Parameter.Type(descriptor.type).name)
            raise InvalidParameterValueException(name, value, result.reason)
        descriptor.name, descriptor.type = name, descriptor.type or parameter.type_.value
        self.values[name], self.descriptors[name] = parameter, descriptor
        return parameter

    def get(self, name: str) -> Parameter:
        if name not in self.values:
            raise ParameterNotDeclaredException(name)
        found = self.values[name]
        if found.type_ is Parameter.Type.NOT_SET and not self.descriptors[name].dynamic_typing:
            raise ParameterUninitializedException(name)
        return found

    def set_atomically(self, parameters: list[Parameter]) -> Any:
        if unknown := [each.name for each in parameters if each.name not in self.values]:
            raise ParameterNotDeclaredException(unknown)
        result = self._judge(parameters, self.descriptors, declaring=False)
        if result.successful:
            self.values.update({each.name: each for each in parameters})
        return result

    def _judge(self, parameters: list[Parameter], descriptors: dict[str, Any], *, declaring: bool) -> Any:
        for each in parameters:
            if reason := _refusal(each, descriptors[each.name], declaring):
                return _bad(reason)
        for callback in self.callbacks:
            result = callback(parameters)
            if not isinstance(result, SetParametersResult):
                refuse(f"rclpy.node.Node.add_on_set_parameters_callback: {callback} returned {result!r}")
            if not result.successful:
                return result
        return SetParametersResult(successful=True)


def _refusal(parameter: Parameter, descriptor: Any, declaring: bool) -> str:
    kind, value = parameter.type_, parameter.value
    if descriptor.read_only and not declaring:
        return f"Trying to set a read-only parameter: {parameter.name}."
    if not descriptor.dynamic_typing and kind is not Parameter.Type.NOT_SET and kind.value != descriptor.type:
        return f"Wrong parameter type, expected '{Parameter.Type(descriptor.type)}' got '{kind}'"
    ranges = {Parameter.Type.INTEGER: descriptor.integer_range, Parameter.Type.DOUBLE: descriptor.floating_point_range}
    for limits in ranges.get(kind, ()):
        low, high = limits.from_value, limits.to_value
        edge = math.isclose(value, low, rel_tol=1e-6) or math.isclose(value, high, rel_tol=1e-6)
        if not edge and not low < value < high:
            return f"Parameter {parameter.name} out of range. Min: {low}, Max: {high}, value: {value}"
    return ""
