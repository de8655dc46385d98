"""Counters of chunks and ticks since the start, for diagnostics."""

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
        """Count an offered chunk."""
        if isinstance(verdict, Accepted):
            self._counts["accepted"] += 1
            self._counts["clipped_values"] += verdict.clipped
        else:
            self._refused[verdict.reason.value] = self._refused.get(verdict.reason.value, 0) + 1

    def late(self, missed: int) -> None:
        """Count a tick that came `missed` periods late."""
        self._counts["late_ticks"] += 1
        self._counts["missed_ticks"] += missed

    def held(self) -> None:
        """Count a published hold command."""
        self._counts["hold_ticks"] += 1

    def totals(self) -> dict[str, Any]:
        """A copy of all counters."""
        return {**self._counts, "refused": dict(self._refused)}
