"""A node with a life cycle, as rclpy.lifecycle: a callback for each transition, and services to request one.

A callback that raises, or returns something else than a TransitionCallbackReturn, is logged and counts as ERROR; a
transition that the state does not have is refused. If it was requested by service, neither makes spin raise.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partialmethod
from typing import Any

from auras_ros.output import Lines

from . import srvtypes
from .lifecycle_machine import (
    STATES,
    TRANSITIONS,
    LifecycleState,
    RCLError,
    State,
    StateMachine,
    Transition,
    TransitionCallbackReturn,
)
from .messages import message_type
from .node import Node
from .qos import qos_profile_default

# The callback of each transition state.
_CALLBACKS = {
    "configuring": "on_configure", "cleaningup": "on_cleanup", "shuttingdown": "on_shutdown",
    "activating": "on_activate", "deactivating": "on_deactivate", "errorprocessing": "on_error",
}  # fmt: skip


class LifecycleNode(Node):
    """A managed node; subclasses override on_configure and the others, each called with the previous state."""

    def __init__(self, node_name: str, *, enable_communication_interface: bool = True, **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        self._state_machine = StateMachine(self._notify)
        self._transition_events = self.create_publisher(
            message_type("lifecycle_msgs/msg/TransitionEvent"), "~/transition_event", qos_profile_default
        )
        if enable_communication_interface:
            self._serve()

    def _serve(self) -> None:
        machine = self._state_machine
        self.create_service(srvtypes.ChangeState, "~/change_state", self._on_change_state)
        for srv_type, name, field, value in (
            (srvtypes.GetState, "get_state", "current_state", lambda _: _state(machine.state)),
            (srvtypes.GetAvailableStates, "get_available_states", "available_states",
             lambda _: [_state(each) for each in STATES.values()]),
            (srvtypes.GetAvailableTransitions, "get_available_transitions", "available_transitions",
             lambda _: [_described(each) for each in machine.available_transitions()]),
            (srvtypes.GetAvailableTransitions, "get_transition_graph", "available_transitions",
             lambda _: [_described(each) for each in TRANSITIONS]),
        ):  # fmt: skip
            self.create_service(srv_type, f"~/{name}", srvtypes.answer(field, value))

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Succeeds, like the other callbacks, unless a subclass overrides it."""
        return TransitionCallbackReturn.SUCCESS

    on_cleanup = on_shutdown = on_activate = on_deactivate = on_error = on_configure

    def _change_state(self, wanted: int | str) -> TransitionCallbackReturn:
        """Returns the result of the transition's callback. Raises RCLError if the state has no such transition."""
        number, label = self._state_machine.current_state
        self._state_machine.trigger(wanted)
        before = LifecycleState(label=label, state_id=number)
        answer = self._call(before)
        self._state_machine.trigger(answer.to_label())
        if answer == TransitionCallbackReturn.ERROR:
            self._state_machine.trigger(self._call(before).to_label())
        return answer

    trigger_configure = partialmethod(_change_state, "configure")
    trigger_cleanup = partialmethod(_change_state, "cleanup")
    trigger_activate = partialmethod(_change_state, "activate")
    trigger_deactivate = partialmethod(_change_state, "deactivate")

    def trigger_shutdown(self) -> TransitionCallbackReturn | None:
        """Shut down from any primary state. Does nothing and returns None in any other state."""
        primary = self._state_machine.current_state[1] in ("unconfigured", "inactive", "active")
        return self._change_state("shutdown") if primary else None

    def _call(self, before: LifecycleState) -> TransitionCallbackReturn:
        """Returns the result of the current transition state's callback."""
        name = _CALLBACKS[self._state_machine.current_state[1]]
        callback: Callable[[LifecycleState], object] = getattr(self, name)
        try:
            answer = callback(before)
        except Exception:  # noqa: BLE001  # any exception of a user's callback counts as ERROR
            text = f"{name} raised, which counts as ERROR:\n{traceback.format_exc().rstrip()}"
            self.get_logger().error(Lines(text))
            return TransitionCallbackReturn.ERROR
        if not isinstance(answer, TransitionCallbackReturn):
            self.get_logger().error(f"{name} returned {answer!r}, not a TransitionCallbackReturn: counts as ERROR")
            return TransitionCallbackReturn.ERROR
        return answer

    def _notify(self, transition: Transition) -> None:
        if self._transition_events.endpoint.closed:  # the context has ended before this transition
            return
        event = self._transition_events.msg_type
        self._transition_events.publish(event(timestamp=self.get_clock().now_ns(), **_parts(transition)))

    def _on_change_state(self, request: Any, response: Any) -> Any:
        """If a label is given, it takes precedence over the id (as rclpy)."""
        try:
            answer = self._change_state(request.transition.label or request.transition.id)
        except RCLError as error:
            self.get_logger().warning(f"change_state refused: {error}")
            answer = TransitionCallbackReturn.FAILURE
        response.success = answer == TransitionCallbackReturn.SUCCESS
        return response


def _state(state: State) -> Any:
    return message_type("lifecycle_msgs/msg/State")(id=state.id, label=state.label)


def _parts(transition: Transition) -> dict[str, Any]:
    """The fields that a transition's event and its description share."""
    named = message_type("lifecycle_msgs/msg/Transition")(id=transition.id, label=transition.label)
    return {"transition": named, "start_state": _state(transition.start), "goal_state": _state(transition.goal)}


def _described(transition: Transition) -> Any:
    return message_type("lifecycle_msgs/msg/TransitionDescription")(**_parts(transition))
