from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import LaunchContext
from .actions import ExecuteProcess
from .events import Event
from .events.process import ProcessExited, ProcessStarted


class EventHandler:
    def __init__(
        self, *, matcher: Callable[[Event], bool], entities: list[Any] | None = None, handle_once: bool = False
    ) -> None:
        assert not handle_once, "not used by us"
        self.matches, self.entities = matcher, entities

    def handle(self, event: Event, context: LaunchContext) -> list[Any] | None:
        return self.entities


class OnProcessStart(EventHandler):
    def __init__(self, *, target_action: Any = None, on_start: Any) -> None:
        if not isinstance(target_action, (ExecuteProcess, type(None))):
            raise TypeError("OnProcessStart requires an 'ExecuteProcess' action as the target")
        super().__init__(
            matcher=lambda event: isinstance(event, ProcessStarted) and target_action in (None, event.action)
        )
        self._on_start = on_start

    def handle(self, event: Event, context: LaunchContext) -> list[Any] | None:
        return self._on_start(event, context) if callable(self._on_start) else list(self._on_start)


class OnProcessExit(EventHandler):
    def __init__(self, *, target_action: Any = None, on_exit: Any) -> None:
        if not isinstance(target_action, (ExecuteProcess, type(None))):
            raise RuntimeError("OnProcessExit requires an 'ExecuteProcess' action as the target")
        super().__init__(
            matcher=lambda event: isinstance(event, ProcessExited) and target_action in (None, event.action)
        )
        self._on_exit = on_exit

    def handle(self, event: Event, context: LaunchContext) -> list[Any] | None:
        return self._on_exit(event, context)
