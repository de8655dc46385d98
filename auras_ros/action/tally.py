"""Counters of chunks and ticks since the start, for diagnostics."""

from __future__ import annotations

from typing import Any

from .verdict import Accepted, Rejected


class Tally:
    """Totals that only rise; `refused` maps the reason of a refusal to its number."""

    def __init__(self) -> None:
        self.accepted = self.clipped_values = self.published = 0
        self.hold_ticks = self.late_ticks = self.missed_ticks = self.limited_ticks = 0
        self.refused: dict[str, int] = {}

    def count_offer(self, verdict: Accepted | Rejected) -> None:
        """Count an offered chunk."""
        if isinstance(verdict, Accepted):
            self.accepted += 1
            self.clipped_values += verdict.clipped
        else:
            self.refused[verdict.reason.value] = self.refused.get(verdict.reason.value, 0) + 1

    def totals(self) -> dict[str, Any]:
        """A copy of all counters."""
        return {**vars(self), "refused": dict(self.refused)}
