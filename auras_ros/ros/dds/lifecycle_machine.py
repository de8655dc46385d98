"""The life cycle's states and transitions, as rcl_lifecycle numbers and names them.

A table and a place in it: it runs no callback and knows no node. A transition that the current state does not
have is refused and changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


class RCLError(RuntimeError):
    """A request that rcl refuses; here, a transition that the current state does not have."""


@dataclass(frozen=True)
class State:
    id: int
    label: str


@dataclass(frozen=True)
class Transition:
    id: int
    label: str
    start: State
    goal: State


# lifecycle_msgs/msg/State: primary states below 10, transition states from 10.
STATES = {
    label: State(number, label)
    for number, label in (
        (0, "unknown"), (1, "unconfigured"), (2, "inactive"), (3, "active"), (4, "finalized"), (10, "configuring"),
        (11, "cleaningup"), (12, "shuttingdown"), (13, "activating"), (14, "deactivating"), (15, "errorprocessing"),
    )
}  # fmt: skip
SUCCESS, FAILURE, ERROR = "transition_success", "transition_failure", "transition_error"
_ERRORS = "errorprocessing"


def _outcomes(start: str, first_id: int, success: str, failure: str, error: str = _ERRORS) -> list[Transition]:
    goals = ((SUCCESS, success), (FAILURE, failure), (ERROR, error))
    return [Transition(first_id + i, label, STATES[start], STATES[goal]) for i, (label, goal) in enumerate(goals)]


def _asked(number: int, label: str, start: str, goal: str) -> Transition:
    return Transition(number, label, STATES[start], STATES[goal])


# lifecycle_msgs/msg/Transition, in the order in which rcl registers them.
TRANSITIONS = (
    _asked(1, "configure", "unconfigured", "configuring"),
    *_outcomes("configuring", 10, "inactive", "unconfigured"),
    _asked(2, "cleanup", "inactive", "cleaningup"),
    *_outcomes("cleaningup", 20, "unconfigured", "inactive"),
    _asked(3, "activate", "inactive", "activating"),
    *_outcomes("activating", 30, "active", "inactive"),
    _asked(4, "deactivate", "active", "deactivating"),
    *_outcomes("deactivating", 40, "inactive", "active"),
    _asked(5, "shutdown", "unconfigured", "shuttingdown"),
    _asked(6, "shutdown", "inactive", "shuttingdown"),
    _asked(7, "shutdown", "active", "shuttingdown"),
    *_outcomes("shuttingdown", 50, "finalized", "finalized"),
    *_outcomes(_ERRORS, 60, "unconfigured", "finalized", "finalized"),
)
Described = tuple[int, str, int, str, int, str]


def _described(transitions: list[Transition]) -> list[Described]:
    return [(t.id, t.label, t.start.id, t.start.label, t.goal.id, t.goal.label) for t in transitions]


class StateMachine:
    """The current state; `notify(transition)` is called after each change. Safe from any thread."""

    def __init__(self, notify: Callable[[Transition], None]) -> None:
        self._notify = notify
        self._lock = threading.RLock()
        self._state = STATES["unconfigured"]
        self.initialized = True

    @property
    def current_state(self) -> tuple[int, str]:
        state = self._state
        return state.id, state.label

    @property
    def available_states(self) -> list[tuple[int, str]]:
        """(id, label) of every state."""
        return [(state.id, state.label) for state in STATES.values()]

    @property
    def available_transitions(self) -> list[Described]:
        """(id, label, start id, start label, goal id, goal label) of what the current state allows."""
        state = self._state
        return _described([transition for transition in TRANSITIONS if transition.start is state])

    @property
    def transition_graph(self) -> list[Described]:
        """As available_transitions, of all states."""
        return _described(list(TRANSITIONS))

    def get_transition_by_label(self, label: str) -> int:
        """The id of the current state's transition of that label; RCLError where it has none."""
        return self._find(lambda transition: transition.label == label, repr(label)).id

    def trigger_transition_by_id(self, transition_id: int, publish_update: bool) -> None:
        """Go through one of the current state's transitions; RCLError where it has none of that id."""
        with self._lock:
            self._go(self._find(lambda t: t.id == transition_id, f"of id {transition_id}"), publish_update)

    def trigger_transition_by_label(self, label: str, publish_update: bool) -> None:
        with self._lock:
            self._go(self._find(lambda transition: transition.label == label, repr(label)), publish_update)

    def _find(self, fits: Callable[[Transition], bool], wanted: str) -> Transition:
        state = self._state
        found = [transition for transition in TRANSITIONS if transition.start is state and fits(transition)]
        if not found:
            allowed = ", ".join(f"{t.label} ({t.id})" for t in TRANSITIONS if t.start is state) or "none"
            raise RCLError(f"no transition {wanted} from state {state.label}; it has: {allowed}")
        return found[0]

    def _go(self, transition: Transition, publish_update: bool) -> None:
        self._state = transition.goal
        if publish_update:
            self._notify(transition)
