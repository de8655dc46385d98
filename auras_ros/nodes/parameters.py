"""Node parameters as a frozen dataclass: declared from its fields, checked where they enter, then never changed.

A field's metadata says what it means and what it may be; `ros2 param describe` shows the same words. A node that reads
its parameters once declares them read-only; one that reads them at each configure lets them be set in between.
"""

from __future__ import annotations

from dataclasses import Field, field, fields
from typing import Any, TypeVar

from auras_ros.ros import InvalidParameterTypeException, InvalidParameterValueException, Node, Parameter
from auras_ros.ros.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

T = TypeVar("T")


class ParameterError(ValueError):
    """A parameter that cannot be used; the text names node, parameter and what is allowed."""


def parameter(default: Any, description: str, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field that is a node parameter. low, high: inclusive bounds for numbers."""
    return field(default=default, metadata={"description": description, "low": low, "high": high})


def read_parameters(node: Node, settings: type[T]) -> T:
    """Declare every field of the dataclass on `node`, read-only, and return the values given.

    An integer where a float is expected is taken; any other type, and a value out of bounds, raises
    ParameterError naming the parameter.
    """
    declare_parameters(node, settings, read_only=True)
    return current_parameters(node, settings)


def declare_parameters(node: Node, settings: type[Any], *, read_only: bool) -> None:
    """Declare every field with its bounds; values that were given are checked. Raises ParameterError."""
    for each in fields(settings):
        try:
            given = node.declare_parameter(each.name, each.default, _descriptor(each, read_only)).value
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            low, high = each.metadata["low"], each.metadata["high"]
            bounds = "" if low is None else f"must be in [{low}, {high}]: "
            raise ParameterError(f"{node.get_name()}: {each.name}: {bounds}{error}") from error
        _checked(node, each, given)


def current_parameters(node: Node, settings: type[T]) -> T:
    """The values that the declared parameters have now. Raises ParameterError."""
    values = {
        each.name: _checked(node, each, node.get_parameter(each.name).value)
        for each in fields(settings)  # type: ignore[arg-type]
    }
    return settings(**values)


def refusal(node: Node, settings: type[Any], given: Parameter) -> str:
    """Why a value may not be set; empty for one that may, and for a parameter that is not of these settings."""
    for each in fields(settings):
        if each.name == given.name:
            try:
                _checked(node, each, given.value)
            except ParameterError as error:
                return str(error)
    return ""


def _checked(node: Node, each: Field[Any], given: Any) -> Any:
    default, low, high = each.default, each.metadata["low"], each.metadata["high"]
    if isinstance(default, float) and type(given) is int:
        given = float(given)
    if type(given) is not type(default):
        expected = type(default).__name__
        raise ParameterError(f"{node.get_name()}: {each.name}: expected {expected}, got {given!r}")
    if low is not None and not low <= given <= high:
        raise ParameterError(f"{node.get_name()}: {each.name}: must be in [{low}, {high}], got {given!r}")
    return given


def _descriptor(each: Field[Any], read_only: bool) -> ParameterDescriptor:
    meta = each.metadata
    descriptor = ParameterDescriptor(
        name=each.name, description=meta["description"], read_only=read_only, dynamic_typing=True
    )
    if meta["low"] is not None and isinstance(each.default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=meta["low"], to_value=meta["high"], step=0.0)]
    elif meta["low"] is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(meta["low"]), to_value=int(meta["high"]), step=1)]
    return descriptor
