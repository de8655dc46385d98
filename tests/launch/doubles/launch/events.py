from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Event:
    """Anything that happens."""


class ProcessStarted(Event):  # launch.events.process
    def __init__(self, *, action: Any) -> None:
        self.action = action


def matches_action(target_action: Any) -> Callable[[Any], bool]:
    return lambda action: action is target_action
