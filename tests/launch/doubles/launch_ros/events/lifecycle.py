from __future__ import annotations

from collections.abc import Callable
from typing import Any

from launch.events import Event


class ChangeState(Event):
    def __init__(self, *, lifecycle_node_matcher: Callable[[Any], bool], transition_id: int) -> None:
        if transition_id not in range(9):
            raise ValueError(f"given transition_id of {transition_id!r}")
        self.lifecycle_node_matcher, self.transition_id = lifecycle_node_matcher, transition_id


class StateTransition(Event):
    """The real one is made of a TransitionEvent message; these are the labels in it."""

    def __init__(self, *, action: Any, transition: str, start_state: str, goal_state: str) -> None:
        self.action, self.transition = action, transition
        self.start_state, self.goal_state = start_state, goal_state
