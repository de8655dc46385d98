from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import LaunchContext
from .events import Event


class Action:
    def execute(self, context: LaunchContext) -> list[Any] | None:
        raise NotImplementedError


class DeclareLaunchArgument(Action):
    def __init__(
        self,
        name: str,
        *,
        default_value: str | None = None,
        description: str | None = None,
        choices: list[str] | None = None,
    ) -> None:
        self.name, self.default_value, self.description, self.choices = name, default_value, description, choices

    def execute(self, context: LaunchContext) -> None:
        if self.name not in context.launch_configurations:
            if self.default_value is None:
                raise RuntimeError(f'Required launch argument "{self.name}" was not provided.')
            context.launch_configurations[self.name] = self.default_value
        if self.choices is not None and context.launch_configurations[self.name] not in self.choices:
            raise RuntimeError(f'Argument "{self.name}" is not valid. Valid options are: {self.choices}')


class OpaqueFunction(Action):
    def __init__(
        self,
        *,
        function: Callable[..., list[Any] | None],
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"OpaqueFunction expected a callable for 'function', got {type(function)}")
        self._call = function, list(args or []), dict(kwargs or {})

    def execute(self, context: LaunchContext) -> list[Any] | None:
        function, args, kwargs = self._call
        return function(context, *args, **kwargs)


class EmitEvent(Action):
    def __init__(self, *, event: Event) -> None:
        if not isinstance(event, Event):
            raise RuntimeError(f"EmitEvent() expected an event instance, got {event!r}.")
        self.event = event

    def execute(self, context: LaunchContext) -> None:
        context.emit_event_sync(self.event)


class RegisterEventHandler(Action):
    def __init__(self, event_handler: Any) -> None:
        self.event_handler = event_handler

    def execute(self, context: LaunchContext) -> None:
        context.register_event_handler(self.event_handler)


class TimerAction(Action):
    """Once, and never again: an instance that is executed a second time is refused."""

    def __init__(self, *, period: float, actions: Iterable[Any]) -> None:
        if not isinstance(period, float):
            raise TypeError(f"TimerAction: period must be a float, got {period!r}")
        self.period, self.actions, self._spent = period, list(actions), False

    def execute(self, context: LaunchContext) -> None:
        assert not self._spent, "a timer is executed twice"
        self._spent = True
        context.timers.append((context.now_s + self.period, self.actions))


class ExecuteProcess(Action):
    """A process that the test starts, and starts again, by `context.emit_event_sync(ProcessStarted(action=...))`."""

    def execute(self, context: LaunchContext) -> None:
        context.started.append(self)
