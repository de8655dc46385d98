"""A node's parameters, declared from the fields of a frozen dataclass (`auras_ros.parameters`) and read into it.

They are read-only, except those that a node reads again while it runs; of these, the ones that name files need
`remote_configuration: true` at the node's start.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import Field, fields
from typing import Any, TypeVar

from auras_ros.parameters import REMOTE_CONFIGURATION, ParameterError, checked, unknown
from auras_ros.ros import InvalidParameterTypeException, InvalidParameterValueException, Node, Parameter
from auras_ros.ros.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

T = TypeVar("T")
AT_START_ONLY = f"set at the node's start only; {REMOTE_CONFIGURATION}: true, also given at the start, allows it later"


def read_parameters(node: Node, settings: type[T], live: Collection[str] = ()) -> T:
    """Declare every field of the dataclass on `node` and return the values. live: names that may be set later.

    An integer is accepted where a float is expected; any other type, and a value out of bounds, raises
    ParameterError naming the parameter.
    """
    declare_parameters(node, settings, live)
    return current_parameters(node, settings)


def declare_parameters(node: Node, settings: type[Any], live: Collection[str]) -> None:
    """Declare every field with its bounds; check the given values and names. live: names that may be set later, if
    they name no files or `remote_configuration` is true. Raises ParameterError."""
    given = _given(node)
    # `remote_configuration` first: its value decides about others.
    for each in sorted(fields(settings), key=lambda each: each.name != REMOTE_CONFIGURATION):
        if each.name in given:
            checked(node.get_name(), each, given[each.name])
        descriptor = _descriptor(each, read_only=_is_read_only(node, each, live))
        try:
            value = node.declare_parameter(each.name, each.default, descriptor).value
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


def _given(node: Node) -> dict[str, Any]:
    """The parameters that the node was started with, declared or not. rclpy has them only in a private attribute; if
    it is missing, types and bounds are still checked by the declaration, and names by the reader of the file."""
    return {name: each.value for name, each in getattr(node, "_parameter_overrides", {}).items()}


def _refuse_unknown(node: Node, settings: type[Any], name: str) -> None:
    """Handle an undeclared name. It may come from a section for many nodes (`/**`), so it is only refused if it is
    similar to one of ours."""
    if text := unknown(settings, name):
        raise ParameterError(f"{node.get_name()}: {text}")
    node.get_logger().warning(f"unknown parameter '{name}' ignored")


def _is_read_only(node: Node, each: Field[Any], live: Collection[str]) -> bool:
    if each.name not in live or each.name == REMOTE_CONFIGURATION:
        return True
    is_remote = node.has_parameter(REMOTE_CONFIGURATION) and node.get_parameter(REMOTE_CONFIGURATION).value
    return bool(each.metadata["names_files"] and not is_remote)


def _descriptor(each: Field[Any], *, read_only: bool) -> ParameterDescriptor:
    meta = each.metadata
    descriptor = ParameterDescriptor(
        name=each.name, description=meta["description"], read_only=read_only, dynamic_typing=True
    )
    if read_only and meta["names_files"]:
        descriptor.additional_constraints = AT_START_ONLY
    if meta["low"] is not None and isinstance(each.default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=meta["low"], to_value=meta["high"], step=0.0)]
    elif meta["low"] is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(meta["low"]), to_value=int(meta["high"]), step=1)]
    return descriptor
