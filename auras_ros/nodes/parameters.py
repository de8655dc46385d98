"""Node parameters as a frozen dataclass: declared from its fields, checked once, then never changed.

A field's metadata says what it means and what it may be; `ros2 param describe` shows the same words.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, TypeVar

from auras_ros.ros import InvalidParameterTypeException, InvalidParameterValueException, Node
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
    values: dict[str, Any] = {}
    for each in fields(settings):  # type: ignore[arg-type]
        meta, default = each.metadata, each.default
        low, high = meta["low"], meta["high"]
        try:
            given = _declare(node, each.name, default, meta)
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            bounds = "" if low is None else f"must be in [{low}, {high}]: "
            raise ParameterError(f"{node.get_name()}: {each.name}: {bounds}{error}") from error
        if isinstance(default, float) and type(given) is int:
            given = float(given)
        if type(given) is not type(default):
            expected = type(default).__name__
            raise ParameterError(f"{node.get_name()}: {each.name}: expected {expected}, got {given!r}")
        if low is not None and not low <= given <= high:
            raise ParameterError(f"{node.get_name()}: {each.name}: must be in [{low}, {high}], got {given!r}")
        values[each.name] = given
    return settings(**values)


def _declare(node: Node, name: str, default: Any, meta: Any) -> Any:
    descriptor = ParameterDescriptor(name=name, description=meta["description"], read_only=True, dynamic_typing=True)
    if meta["low"] is not None and isinstance(default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=meta["low"], to_value=meta["high"], step=0.0)]
    elif meta["low"] is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(meta["low"]), to_value=int(meta["high"]), step=1)]
    return node.declare_parameter(name, default, descriptor).value
