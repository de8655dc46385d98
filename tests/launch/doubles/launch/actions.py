from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import LaunchContext
from .events import Event
from .events.process import ProcessExited, ProcessStarted, ShutdownProcess


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


class LogInfo(Action):
    def __init__(self, *, msg: str) -> None:
        self.msg = msg

    def execute(self, context: LaunchContext) -> None:
        context.logged.append(self.msg)


class ExecuteProcess(Action):
    """A process that the test starts and ends. After its end it is started again as `respawn` says: once the delay has
    passed, unless it was told to shut down by then. `starts`: how often it was."""

    respawn = False
    respawn_delay: float | None = None
    starts = 0
    _shut = _executed = False

    def execute(self, context: LaunchContext) -> None:
        if self._executed:
            raise RuntimeError("ExecuteLocal action: executed more than once")
        self._executed = True
        context.started.append(self)
        context.register_event_handler(_OnShutdownProcess(self))

    def start(self, context: LaunchContext) -> None:
        self.starts += 1
        context.emit_event_sync(ProcessStarted(action=self))

    def exit(self, context: LaunchContext, returncode: int) -> None:
        context.emit_event_sync(ProcessExited(action=self, returncode=returncode))
        if self.respawn:
            again = OpaqueFunction(function=lambda context: None if self._shut else self.start(context))
            context.timers.append((context.now_s + (self.respawn_delay or 0.0), [again]))


class _OnShutdownProcess:
    def __init__(self, action: ExecuteProcess) -> None:
        self._action = action

    def matches(self, event: Event) -> bool:
        return isinstance(event, ShutdownProcess) and event.process_matcher(self._action)

    def handle(self, event: Event, context: LaunchContext) -> None:
        self._action._shut = True
