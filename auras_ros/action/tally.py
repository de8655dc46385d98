"""Counters of chunks and ticks since the start, for diagnostics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .verdict import Accepted, Rejected


@dataclass
class Tally:
    """Totals that only rise; `refused` maps the reason of a refusal to its number."""

    accepted: int = 0
    clipped_values: int = 0
    hold_ticks: int = 0
    late_ticks: int = 0
    missed_ticks: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    published: int = 0
    limited_ticks: int = 0

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
