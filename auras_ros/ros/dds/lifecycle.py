"""A node with a life cycle, as rclpy.lifecycle: callbacks on each transition, services to ask for one.

A callback that raises or answers nonsense is logged with its traceback and counts as ERROR; a transition that
the state does not have is refused. Neither ever leaves the executor's spin when it came by service.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from . import srvtypes
from .lifecycle_machine import RCLError, StateMachine, Transition
from .managed import LifecyclePublisher, LifecycleState, ManagedEntity, TransitionCallbackReturn
from .messages import message_type
from .node import Node
from .qos import qos_profile_default

_Entity = TypeVar("_Entity", bound=ManagedEntity)
# The callback of each transition state.
_CALLBACKS = {
    "configuring": "on_configure", "cleaningup": "on_cleanup", "shuttingdown": "on_shutdown",
    "activating": "on_activate", "deactivating": "on_deactivate", "errorprocessing": "on_error",
}  # fmt: skip
_SHUTDOWN = {"unconfigured": 5, "inactive": 6, "active": 7}


class LifecycleNode(ManagedEntity, Node):
    """A managed node; subclasses override on_configure and its like, each called with the state before."""

    def __init__(self, node_name: str, *, enable_communication_interface: bool = True, **kwargs: Any) -> None:
        Node.__init__(self, node_name, **kwargs)
        self._managed_entities: dict[ManagedEntity, None] = {}
        self._state_machine = StateMachine(self._notify)
        self._transition_events = self.create_publisher(
            message_type("lifecycle_msgs/msg/TransitionEvent"), "~/transition_event", qos_profile_default
        )
        if enable_communication_interface:
            self.create_service(srvtypes.ChangeState, "~/change_state", self._on_change_state)
            self.create_service(srvtypes.GetState, "~/get_state", self._on_get_state)
            self.create_service(srvtypes.GetAvailableStates, "~/get_available_states", self._on_get_states)
            transitions = srvtypes.GetAvailableTransitions
            self.create_service(transitions, "~/get_available_transitions", self._on_get_transitions)
            self.create_service(transitions, "~/get_transition_graph", self._on_get_graph)

    def trigger_configure(self) -> TransitionCallbackReturn:
        """What on_configure answered. RCLError (a RuntimeError) where the state has no such transition."""
        return self._change_state(1)

    def trigger_cleanup(self) -> TransitionCallbackReturn:
        return self._change_state(2)

    def trigger_activate(self) -> TransitionCallbackReturn:
        return self._change_state(3)

    def trigger_deactivate(self) -> TransitionCallbackReturn:
        return self._change_state(4)

    def trigger_shutdown(self) -> TransitionCallbackReturn | None:
        """Shut down from any primary state; None (and nothing done) where there is nothing to shut down."""
        number = _SHUTDOWN.get(self._state_machine.current_state[1])
        return None if number is None else self._change_state(number)

    def add_managed_entity(self, entity: ManagedEntity) -> None:
        """Have the entity's callbacks called by this node's default ones."""
        self._managed_entities[entity] = None

    def create_lifecycle_publisher(self, *args: Any, **kwargs: Any) -> LifecyclePublisher:
        """As create_publisher; it publishes only while the node is active."""
        if "publisher_class" in kwargs:
            raise TypeError("create_lifecycle_publisher: unexpected keyword argument 'publisher_class'")
        made = self.create_publisher(*args, publisher_class=LifecyclePublisher, **kwargs)
        assert isinstance(made, LifecyclePublisher)
        self.add_managed_entity(made)
        return made

    def destroy_lifecycle_publisher(self, publisher: LifecyclePublisher) -> bool:
        self._managed_entities.pop(publisher, None)
        return self.destroy_publisher(publisher)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._ask_entities("on_configure", state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._ask_entities("on_cleanup", state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._ask_entities("on_shutdown", state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._ask_entities("on_activate", state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._ask_entities("on_deactivate", state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._ask_entities("on_error", state)

    def _ask_entities(self, callback: str, state: LifecycleState) -> TransitionCallbackReturn:
        """The first answer that is no SUCCESS; the entities after it are not asked."""
        for entity in list(self._managed_entities):
            answer: TransitionCallbackReturn = getattr(entity, callback)(state)
            if answer != TransitionCallbackReturn.SUCCESS:
                return answer
        return TransitionCallbackReturn.SUCCESS

    def _change_state(self, transition_id: int) -> TransitionCallbackReturn:
        number, label = self._state_machine.current_state
        self._state_machine.trigger_transition_by_id(transition_id, True)
        before = LifecycleState(label=label, state_id=number)
        answer = self._call(before)
        self._state_machine.trigger_transition_by_label(answer.to_label(), True)
        if answer == TransitionCallbackReturn.ERROR:
            self._state_machine.trigger_transition_by_label(self._call(before).to_label(), True)
        return answer

    def _call(self, before: LifecycleState) -> TransitionCallbackReturn:
        """What the current transition state's callback answers."""
        name = _CALLBACKS[self._state_machine.current_state[1]]
        callback: Callable[[LifecycleState], object] = getattr(self, name)
        try:
            answer = callback(before)
        except Exception:  # noqa: BLE001  # whatever a user's callback raises is its answer
            self.get_logger().error(f"{name} raised, which counts as ERROR:\n{traceback.format_exc().rstrip()}")
            return TransitionCallbackReturn.ERROR
        if not isinstance(answer, TransitionCallbackReturn):
            self.get_logger().error(f"{name} returned {answer!r}, no TransitionCallbackReturn: counts as ERROR")
            return TransitionCallbackReturn.ERROR
        return answer

    def _notify(self, transition: Transition) -> None:
        if self._transition_events.endpoint.closed:  # the node outlives its context by this transition
            return
        event = self._transition_events.msg_type(timestamp=self.get_clock().now_ns())
        event.transition.id, event.transition.label = transition.id, transition.label
        event.start_state.id, event.start_state.label = transition.start.id, transition.start.label
        event.goal_state.id, event.goal_state.label = transition.goal.id, transition.goal.label
        self._transition_events.publish(event)

    def _on_change_state(self, request: Any, response: Any) -> Any:
        """A label, where it is given, goes before the id (as rclpy)."""
        number = request.transition.id
        try:
            if request.transition.label:
                number = self._state_machine.get_transition_by_label(request.transition.label)
            response.success = self._change_state(number) == TransitionCallbackReturn.SUCCESS
        except RCLError as error:
            self.get_logger().warning(f"change_state refused: {error}")
            response.success = False
        return response

    def _on_get_state(self, request: Any, response: Any) -> Any:
        response.current_state.id, response.current_state.label = self._state_machine.current_state
        return response

    def _on_get_states(self, request: Any, response: Any) -> Any:
        state = message_type("lifecycle_msgs/msg/State")
        response.available_states = [state(id=i, label=label) for i, label in self._state_machine.available_states]
        return response

    def _on_get_transitions(self, request: Any, response: Any) -> Any:
        response.available_transitions = [_described(*t) for t in self._state_machine.available_transitions]
        return response

    def _on_get_graph(self, request: Any, response: Any) -> Any:
        response.available_transitions = [_described(*t) for t in self._state_machine.transition_graph]
        return response


def _described(number: int, label: str, start: int, start_label: str, goal: int, goal_label: str) -> Any:
    state, transition = message_type("lifecycle_msgs/msg/State"), message_type("lifecycle_msgs/msg/Transition")
    return message_type("lifecycle_msgs/msg/TransitionDescription")(
        transition=transition(id=number, label=label),
        start_state=state(id=start, label=start_label),
        goal_state=state(id=goal, label=goal_label),
    )
