from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Event:
    """Anything that happens."""


def matches_action(target_action: Any) -> Callable[[Any], bool]:
    return lambda action: action is target_action
