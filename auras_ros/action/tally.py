"""What happened to chunks and ticks since the start, in numbers, for diagnostics. It judges nothing."""

from __future__ import annotations

from typing import Any

from .verdict import Accepted, Rejected

_NAMES = ("accepted", "clipped_values", "hold_ticks", "late_ticks", "missed_ticks")


class Tally:
    """Totals that only rise; `refused` maps the reason of a refusal to its number."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_NAMES, 0)
        self._refused: dict[str, int] = {}

    def offered(self, verdict: Accepted | Rejected) -> None:
        """A chunk was offered."""
        if isinstance(verdict, Accepted):
            self._counts["accepted"] += 1
            self._counts["clipped_values"] += verdict.clipped
        else:
            self._refused[verdict.reason.value] = self._refused.get(verdict.reason.value, 0) + 1

    def late(self, missed: int) -> None:
        """A tick came so many periods late."""
        self._counts["late_ticks"] += 1
        self._counts["missed_ticks"] += missed

    def held(self) -> None:
        """A hold command was published."""
        self._counts["hold_ticks"] += 1

    def totals(self) -> dict[str, Any]:
        """A copy of all of them."""
        return {**self._counts, "refused": dict(self._refused)}
