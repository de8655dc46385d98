from __future__ import annotations

from collections.abc import Callable
from typing import Any


class DeclareLaunchArgument:
    def __init__(self, name: str, *, default_value: str | None = None, description: str | None = None) -> None:
        self.name, self.default_value, self.description = name, default_value, description


class OpaqueFunction:
    def __init__(self, *, function: Callable[..., Any]) -> None:
        self.function = function
