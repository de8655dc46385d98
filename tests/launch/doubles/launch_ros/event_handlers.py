from __future__ import annotations

from typing import Any

from launch.event_handlers import EventHandler
from launch.events import Event

from .actions import LifecycleNode
from .events.lifecycle import StateTransition


class OnStateTransition(EventHandler):
    def __init__(
        self,
        *,
        entities: list[Any],
        target_lifecycle_node: Any = None,
        transition: str | None = None,
        start_state: str | None = None,
        goal_state: str | None = None,
    ) -> None:
        if not isinstance(target_lifecycle_node, (LifecycleNode, type(None))):
            raise RuntimeError("OnStateTransition requires a 'LifecycleNode' action as the target")

        def matches(event: Event) -> bool:
            return isinstance(event, StateTransition) and all(
                wanted is None or wanted == found
                for wanted, found in (
                    (target_lifecycle_node, event.action),
                    (transition, event.transition),
                    (start_state, event.start_state),
                    (goal_state, event.goal_state),
                )
            )

        super().__init__(matcher=matches, entities=entities)
