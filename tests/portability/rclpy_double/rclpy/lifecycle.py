"""rclpy.lifecycle. As released rclpy, a callback that raises counts as ERROR and nobody hears why."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from lifecycle_msgs.srv import ChangeState, GetAvailableStates, GetAvailableTransitions, GetState
from rclpy_recording import refuse, strict

from .entities import Publisher
from .exceptions import RCLError
from .node import Node


class TransitionCallbackReturn(Enum):
    SUCCESS = 97
    FAILURE = 98
    ERROR = 99

    def to_label(self) -> str:
        return f"transition_{self.name.lower()}"


class LifecycleState(NamedTuple):
    label: str
    state_id: int


class ManagedEntity:
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return TransitionCallbackReturn.SUCCESS

    on_cleanup = on_shutdown = on_activate = on_deactivate = on_error = on_configure


class SimpleManagedEntity(ManagedEntity):
    _enabled = False

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._enabled = True
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._enabled = False
        return TransitionCallbackReturn.SUCCESS

    @property
    def is_activated(self) -> bool:
        return self._enabled


class LifecyclePublisher(SimpleManagedEntity, Publisher):
    def publish(self, msg: Any) -> None:
        if self._enabled:
            Publisher.publish(self, msg)


STATES = {"unconfigured": 1, "inactive": 2, "active": 3, "finalized": 4, "configuring": 10, "cleaningup": 11,
          "shuttingdown": 12, "activating": 13, "deactivating": 14, "errorprocessing": 15}  # fmt: skip
# id of the transition: (from, callback, state while it runs, after success, after failure)
TRANSITIONS = {
    1: ("unconfigured", "on_configure", "configuring", "inactive", "unconfigured"),
    2: ("inactive", "on_cleanup", "cleaningup", "unconfigured", "inactive"),
    3: ("inactive", "on_activate", "activating", "active", "inactive"),
    4: ("active", "on_deactivate", "deactivating", "inactive", "active"),
    5: ("unconfigured", "on_shutdown", "shuttingdown", "finalized", "finalized"),
    6: ("inactive", "on_shutdown", "shuttingdown", "finalized", "finalized"),
    7: ("active", "on_shutdown", "shuttingdown", "finalized", "finalized"),
}
LABELS = {"configure": 1, "cleanup": 2, "activate": 3, "deactivate": 4}


@strict
class LifecycleNode(ManagedEntity, Node):
    def __init__(self, node_name: str, *, enable_communication_interface: bool = True, **kwargs: Any) -> None:
        Node.__init__(self, node_name, **kwargs)
        self.__state, self.__managed = "unconfigured", list[ManagedEntity]()
        if enable_communication_interface:
            self.create_service(ChangeState, "~/change_state", self.__on_change_state)
            self.create_service(GetState, "~/get_state", self.__on_get_state)
            for kind, name in (
                (GetAvailableStates, "available_states"),
                (GetAvailableTransitions, "available_transitions"),
                (GetAvailableTransitions, "transition_graph"),
            ):
                self.create_service(kind, f"~/get_{name}", lambda request, response: response)

    def trigger_configure(self) -> TransitionCallbackReturn:
        return self.__change(1)

    def trigger_cleanup(self) -> TransitionCallbackReturn:
        return self.__change(2)

    def trigger_activate(self) -> TransitionCallbackReturn:
        return self.__change(3)

    def trigger_deactivate(self) -> TransitionCallbackReturn:
        return self.__change(4)

    def trigger_shutdown(self) -> TransitionCallbackReturn | None:
        number = {"unconfigured": 5, "inactive": 6, "active": 7}.get(self.__state)
        return None if number is None else self.__change(number)

    def add_managed_entity(self, entity: ManagedEntity) -> None:
        self.__managed.append(entity)

    def create_lifecycle_publisher(self, *args: Any, **kwargs: Any) -> LifecyclePublisher:
        made = self.create_publisher(*args, publisher_class=LifecyclePublisher, **kwargs)
        assert isinstance(made, LifecyclePublisher)
        self.__managed.append(made)
        return made

    def destroy_lifecycle_publisher(self, publisher: LifecyclePublisher) -> bool:
        self.__managed.remove(publisher)
        return self.destroy_publisher(publisher)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.__ask("on_configure", state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.__ask("on_cleanup", state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.__ask("on_shutdown", state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.__ask("on_activate", state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.__ask("on_deactivate", state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.__ask("on_error", state)

    def __ask(self, callback: str, state: LifecycleState) -> TransitionCallbackReturn:
        for entity in self.__managed:
            answer: TransitionCallbackReturn = getattr(entity, callback)(state)
            if answer is not TransitionCallbackReturn.SUCCESS:
                return answer
        return TransitionCallbackReturn.SUCCESS

    def __call(self, callback: str, before: LifecycleState) -> TransitionCallbackReturn:
        try:
            answer = getattr(self, callback)(before)
        except Exception as error:  # noqa: BLE001
            print(f"[swallowed by rclpy] {callback}: {error!r}", flush=True)
            return TransitionCallbackReturn.ERROR
        if not isinstance(answer, TransitionCallbackReturn):
            refuse(f"rclpy.lifecycle.LifecycleNode.{callback} returned {answer!r}")
        return answer

    def __change(self, number: int) -> TransitionCallbackReturn:
        start, callback, during, success, failure = TRANSITIONS[number]
        if self.__state != start:
            raise RCLError(f"Failed to trigger lifecycle state machine transition {number} in {self.__state}")
        before, self.__state = LifecycleState(state_id=STATES[start], label=start), during
        answer = self.__call(callback, before)
        if answer is TransitionCallbackReturn.ERROR:
            self.__state = "errorprocessing"
            recovered = self.__call("on_error", before) is TransitionCallbackReturn.SUCCESS
            self.__state = "unconfigured" if recovered else "finalized"
        else:
            self.__state = success if answer is TransitionCallbackReturn.SUCCESS else failure
        return answer

    def __on_change_state(self, request: Any, response: Any) -> Any:
        number = LABELS.get(request.transition.label, request.transition.id)
        response.success = self.__change(number) is TransitionCallbackReturn.SUCCESS
        return response

    def __on_get_state(self, request: Any, response: Any) -> Any:
        response.current_state.id, response.current_state.label = STATES[self.__state], self.__state
        return response
