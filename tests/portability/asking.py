"""Asks a node's own services: any service of any type, by its topic name."""

from __future__ import annotations

from typing import Any

from auras_ros.ros import Parameter
from auras_ros.ros.msg import Transition
from auras_ros.ros.srv import (
    ChangeState,
    DescribeParameters,
    GetParameters,
    GetState,
    ListParameters,
    SetParameters,
    SetParametersAtomically,
)
from tests.nodes.wire import Watch

CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE = 1, 2, 3, 4


def ask(watch: Watch, kind: Any, service: str, **fields: Any) -> Any:
    """The response of a service, whatever it says."""
    client = watch.node.create_client(kind, service)
    try:
        watch.until(client.service_is_ready, f"service {service}")
        future = client.call_async(kind.Request(**fields))
        watch.until(future.done, f"an answer of {service}")
        return future.result()
    finally:
        watch.node.destroy_client(client)


def change(watch: Watch, node: str, transition: int) -> bool:
    return bool(ask(watch, ChangeState, f"{node}/change_state", transition=Transition(id=transition)).success)


def state(watch: Watch, node: str) -> str:
    return str(ask(watch, GetState, f"{node}/get_state").current_state.label)


class Parameters:
    """One node's parameters, through its services."""

    def __init__(self, watch: Watch, node: str) -> None:
        self._watch, self._node = watch, node

    def _ask(self, kind: Any, service: str, **fields: Any) -> Any:
        return ask(self._watch, kind, f"{self._node}/{service}", **fields)

    def names(self) -> set[str]:
        return set(self._ask(ListParameters, "list_parameters", prefixes=[], depth=0).result.names)

    def get(self, name: str) -> Any:
        [value] = self._ask(GetParameters, "get_parameters", names=[name]).values
        return {2: value.integer_value, 3: value.double_value, 4: value.string_value}[value.type]

    def describe(self, name: str) -> Any:
        [found] = self._ask(DescribeParameters, "describe_parameters", names=[name]).descriptors
        return found

    def set(self, **values: Any) -> list[tuple[bool, str]]:
        """(successful, reason) of each."""
        results = self._ask(SetParameters, "set_parameters", parameters=_messages(values)).results
        return [(result.successful, result.reason) for result in results]

    def set_together(self, **values: Any) -> tuple[bool, str]:
        """All or nothing."""
        service = "set_parameters_atomically"
        result = self._ask(SetParametersAtomically, service, parameters=_messages(values)).result
        return result.successful, result.reason


def _messages(values: dict[str, Any]) -> list[Any]:
    return [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
