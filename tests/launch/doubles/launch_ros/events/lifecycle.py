from __future__ import annotations

from typing import Any

from launch.events import Event


class StateTransition(Event):
    """The real one is made of a TransitionEvent message; these are the labels in it."""

    def __init__(self, *, action: Any, transition: str, start_state: str, goal_state: str) -> None:
        self.action, self.transition = action, transition
        self.start_state, self.goal_state = start_state, goal_state
