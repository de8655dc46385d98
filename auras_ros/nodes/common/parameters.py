"""Node parameters as a frozen dataclass: declared from its fields, checked where they enter, then never changed.

A field's metadata has its description and range, which `ros2 param describe` shows. A node that reads its parameters
once declares them read-only; one that reads them at each configure lets them be set in between.
ROS is imported lazily, so checking a config needs none.
"""

from __future__ import annotations

from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from auras_ros.spelling import ALIKE, nearest

if TYPE_CHECKING:
    from auras_ros.ros import Node, Parameter
    from auras_ros.ros.msg import ParameterDescriptor

T = TypeVar("T")


class ParameterError(ValueError):
    """An invalid parameter; the message names node, parameter and the allowed values."""


def parameter(default: Any, description: str, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field that is a node parameter. low, high: inclusive bounds for numbers."""
    return field(default=default, metadata={"description": description, "low": low, "high": high})


def read_parameters(node: Node, settings: type[T]) -> T:
    """Declare every field of the dataclass on `node`, read-only, and return the values given.

    An integer is accepted where a float is expected; any other type, and a value out of bounds, raises
    ParameterError naming the parameter.
    """
    declare_parameters(node, settings, read_only=True)
    return current_parameters(node, settings)


def declare_parameters(node: Node, settings: type[Any], *, read_only: bool) -> None:
    """Declare every field with its bounds; check given values and names. Raises ParameterError."""
    from auras_ros.ros import InvalidParameterTypeException, InvalidParameterValueException

    given = _given(node)
    for each in fields(settings):
        if each.name in given:
            checked(node.get_name(), each, given[each.name])
        try:
            value = node.declare_parameter(each.name, each.default, _descriptor(each, read_only)).value
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            raise ParameterError(f"{node.get_name()}: {each.name}: {error}") from error
        checked(node.get_name(), each, value)
    for name in given:
        if not node.has_parameter(name):
            _refuse_unknown(node, settings, name)


def current_parameters(node: Node, settings: type[T]) -> T:
    """The current values of the declared parameters. Raises ParameterError."""
    values = {
        each.name: checked(node.get_name(), each, node.get_parameter(each.name).value)
        for each in fields(settings)  # type: ignore[arg-type]
    }
    return settings(**values)


def refusal(node: Node, settings: type[Any], given: Parameter) -> str:
    """Why a value may not be set; empty if it may, and for a parameter that does not belong to these settings."""
    for each in fields(settings):
        if each.name == given.name:
            try:
                checked(node.get_name(), each, given.value)
            except ParameterError as error:
                return str(error)
    return ""


def checked(owner: str, each: Field[Any], given: Any) -> Any:
    """The value in the type of the field's default, within its bounds. Raises ParameterError, naming `owner`."""
    default, low, high = each.default, each.metadata["low"], each.metadata["high"]
    if isinstance(default, float) and type(given) is int:
        given = float(given)
    if isinstance(default, tuple) and isinstance(given, list):
        given = tuple(given)
    if type(given) is not type(default):
        expected = "list" if isinstance(default, tuple) else type(default).__name__
        raise ParameterError(f"{owner}: {each.name}: expected {expected}, got {given!r}")
    if low is not None and not low <= given <= high:
        raise ParameterError(f"{owner}: {each.name}: must be in [{low}, {high}], got {given!r}")
    return given


def _given(node: Node) -> dict[str, Any]:
    """The parameters that the node was started with, declared or not. rclpy has them only in a private attribute; if
    that is gone, types and bounds are still checked by the declaration, and names by the reader of the file."""
    return {name: each.value for name, each in getattr(node, "_parameter_overrides", {}).items()}


def unknown(settings: type[Any], name: str, likeness: float = ALIKE) -> str:
    """What a name should be that is similar to one of these parameters, or was one once; empty for any other name."""
    if instead := getattr(settings, "REMOVED", {}).get(name):
        return f"no parameter '{name}'; {instead}"
    meant = nearest(name, [each.name for each in fields(settings)], likeness)
    return f"no parameter '{name}'; did you mean {meant}?" if meant else ""


def _refuse_unknown(node: Node, settings: type[Any], name: str) -> None:
    """Handle an undeclared name. It may come from a section for many nodes (`/**`), so it is only refused if it is
    similar to one of ours."""
    if text := unknown(settings, name):
        raise ParameterError(f"{node.get_name()}: {text}")
    node.get_logger().warning(f"unknown parameter '{name}' ignored")


def _descriptor(each: Field[Any], read_only: bool) -> ParameterDescriptor:
    from auras_ros.ros.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

    meta = each.metadata
    descriptor = ParameterDescriptor(
        name=each.name, description=meta["description"], read_only=read_only, dynamic_typing=True
    )
    if meta["low"] is not None and isinstance(each.default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=meta["low"], to_value=meta["high"], step=0.0)]
    elif meta["low"] is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(meta["low"]), to_value=int(meta["high"]), step=1)]
    return descriptor
