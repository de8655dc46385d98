from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class LaunchDescription:
    def __init__(self, initial_entities: Iterable[Any] | None = None) -> None:
        self.entities = list(initial_entities or [])
