"""A node's parameters for other nodes: the six services that `ros2 param` calls, and /parameter_events.

Every request is answered: a value that cannot be set is refused with the reason, an undeclared name makes the
answer empty (as rclpy), as do more than MOST names, and a callback that raises is logged and counts as a refusal.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from auras_ros.output import Lines, escaped

from . import srvtypes
from .exceptions import ParameterException, ParameterNotDeclaredException, ParameterUninitializedException
from .messages import message_type
from .parameter import Parameter
from .parameters import Changes, refused
from .qos import qos_profile_parameter_events, qos_profile_parameters

if TYPE_CHECKING:
    from .node import Node

MOST = 200  # names in one request: each takes time in which no other callback runs


class ParameterEvents:
    """Publishes what changed on /parameter_events, in the thread that changed it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._event = message_type("rcl_interfaces/msg/ParameterEvent")
        self._publisher = node.create_publisher(self._event, "/parameter_events", qos_profile_parameter_events)

    def publish(self, changes: Changes) -> None:
        if self._publisher.endpoint.closed:  # parameters may still be set after the end, without an event
            return
        self._publisher.publish(
            self._event(
                stamp=self._node.get_clock().now().to_msg(),
                node=self._node.get_fully_qualified_name(),
                new_parameters=[parameter.to_parameter_msg() for parameter in changes.new],
                changed_parameters=[parameter.to_parameter_msg() for parameter in changes.changed],
                deleted_parameters=[parameter.to_parameter_msg() for parameter in changes.deleted],
            )
        )


def serve_parameters(node: Node) -> None:
    """Answer the six services from the node's own parameter methods."""
    for srv_type, name, field, value in (
        (srvtypes.DescribeParameters, "describe_parameters", "descriptors",
         lambda request: _all_or_none(node.describe_parameter, request.names)),
        (srvtypes.GetParameters, "get_parameters", "values",
         lambda request: [each.get_parameter_value() for each in _all_or_none(node.get_parameter, request.names)]),
        (srvtypes.GetParameterTypes, "get_parameter_types", "types",
         lambda request: _all_or_none(node.get_parameter_type, request.names)),
        (srvtypes.ListParameters, "list_parameters", "result",
         lambda request: node.list_parameters(request.prefixes[:MOST], request.depth)),
        (srvtypes.SetParameters, "set_parameters", "results",
         lambda request: [_try_to_set(node, [message], at) for at, message in enumerate(request.parameters)]),
        (srvtypes.SetParametersAtomically, "set_parameters_atomically", "result",
         lambda request: _try_to_set(node, request.parameters, len(request.parameters) - 1)),
    ):  # fmt: skip
        node.create_service(srv_type, f"~/{name}", srvtypes.answer(field, value), qos_profile=qos_profile_parameters)


def _try_to_set(node: Node, messages: list[Any], at: int) -> Any:
    """at: of the last one in its request."""
    if at >= MOST:
        return refused(f"more than {MOST} parameters in one request")
    try:
        parameters = [_parameter(message) for message in messages]
        return node.set_parameters_atomically(parameters)
    except (ParameterException, _NoParameterError) as error:
        return refused(str(error))
    except Exception as error:  # noqa: BLE001  # no remote request may end the node through a user's callback
        named = ", ".join(message.name for message in messages)
        node.get_logger().error(Lines(f"setting {escaped(named)} raised:\n{traceback.format_exc().rstrip()}"))
        return refused(f"a callback raised {type(error).__name__}: {error}")


class _NoParameterError(ValueError):
    """A message that is not a valid parameter."""


def _parameter(message: Any) -> Parameter:
    try:
        return Parameter.from_parameter_msg(message)
    except (TypeError, ValueError) as error:
        raise _NoParameterError(f"parameter {message.name!r}: {error}"[:300]) from error


def _all_or_none(look_up: Callable[[str], Any], names: list[str]) -> list[Any]:
    if len(names) > MOST:
        return []
    try:
        return [look_up(name) for name in names]
    except (ParameterNotDeclaredException, ParameterUninitializedException):
        return []
