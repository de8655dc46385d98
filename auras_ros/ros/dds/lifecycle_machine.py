"""The life cycle's states and transitions, with the ids and labels of rcl_lifecycle.

A table and the current state: it runs no callback and knows no node. A transition that the current state does not
have is refused and changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


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


class TransitionCallbackReturn(Enum):
    """What a life-cycle callback returns; the values are lifecycle_msgs' TRANSITION_CALLBACK_*."""

    SUCCESS = 97
    FAILURE = 98
    ERROR = 99

    def to_label(self) -> str:
        """The label of the transition that follows."""
        return {97: SUCCESS, 98: FAILURE, 99: ERROR}[self.value]


class LifecycleState(NamedTuple):
    """The state in which a transition began."""

    label: str
    state_id: int


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


class StateMachine:
    """The current state; `notify(transition)` is called after each change. Thread-safe."""

    def __init__(self, notify: Callable[[Transition], None]) -> None:
        self._notify = notify
        self._lock = threading.RLock()
        self.state = STATES["unconfigured"]

    @property
    def current_state(self) -> tuple[int, str]:
        """Id and label; nodes written for rclpy read them here, because rclpy has no public name for them."""
        state = self.state
        return state.id, state.label

    def available_transitions(self) -> list[Transition]:
        """The transitions that the current state allows."""
        state = self.state
        return [transition for transition in TRANSITIONS if transition.start is state]

    def trigger(self, wanted: int | str) -> None:
        """Do the current state's transition of that id or label. Raises RCLError if it has none."""
        with self._lock:
            available = self.available_transitions()
            for transition in available:
                if wanted in (transition.id, transition.label):
                    self.state = transition.goal
                    self._notify(transition)
                    return
            name = repr(wanted) if isinstance(wanted, str) else f"of id {wanted}"
            allowed = ", ".join(f"{each.label} ({each.id})" for each in available) or "none"
            raise RCLError(f"no transition {name} from state {self.state.label}; it has: {allowed}")
