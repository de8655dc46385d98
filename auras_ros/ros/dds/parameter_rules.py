"""Whether a value fits a parameter: type and range, as the descriptor says. Nothing here stores a value."""

from __future__ import annotations

from typing import Any

from .exceptions import InvalidParameterTypeException
from .parameter import Parameter

_TYPES = Parameter.Type


def kind(name: str, value: Any) -> Parameter.Type:
    """The type of a value. Raises InvalidParameterTypeException if a parameter cannot hold it."""
    try:
        return Parameter.Type.from_parameter_value(value)
    except TypeError as error:
        raise InvalidParameterTypeException(f"parameter {name}: {error}") from None


def typed(name: str, value: Any, static: Parameter.Type, descriptor: Any) -> Parameter:
    """The declared parameter. Raises InvalidParameterTypeException if the value is not of the static type."""
    if value is None:
        return Parameter(name)
    if descriptor.dynamic_typing or static is _TYPES.NOT_SET:
        return Parameter(name, kind(name, value), value)
    if not static.check(value):
        hint = f"; write {value}.0" if static is _TYPES.DOUBLE and type(value) is int else ""
        raise InvalidParameterTypeException(
            f"parameter {name} is {static.name}, got {kind(name, value).name} {value!r}{hint}"
        )
    return Parameter(name, static, value)


def type_refusal(parameter: Parameter, descriptor: Any) -> str:
    """Why the value is not of the declared type, empty if it is."""
    if descriptor.dynamic_typing or descriptor.type in (0, parameter.type_.value):
        return ""
    wanted = Parameter.Type(descriptor.type)
    if parameter.type_ is not _TYPES.NOT_SET and wanted.check(parameter.value):
        return ""
    return f"parameter {parameter.name} is {wanted.name}, got {parameter.type_.name}"


def range_refusal(parameter: Parameter, descriptor: Any) -> str:
    """Why the value is outside its descriptor's range, empty if it is not."""
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
