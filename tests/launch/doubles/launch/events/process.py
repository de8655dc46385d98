"""launch.events.process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Event


class ProcessStarted(Event):
    def __init__(self, *, action: Any) -> None:
        self.action = action


class ProcessExited(Event):
    def __init__(self, *, action: Any, returncode: int) -> None:
        self.action, self.returncode = action, returncode


class ShutdownProcess(Event):
    def __init__(self, *, process_matcher: Callable[[Any], bool]) -> None:
        self.process_matcher = process_matcher
