"""A plan with its measurements, and how plans are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from auras_ros.evaluate.pace import Generation
from auras_ros.pipeline.plan import Plan


@dataclass(frozen=True)
class Candidate:
    """A plan and its measurements. refused: why it was not played, or not to its end; empty if it was.

    rate_hz: chunks per second; speedup: over that of the baseline, which is a seq. oldest_ms: age of an action when the
    next chunk takes over. success and the following fields: on `episodes` seeds, with the difference from the baseline
    and its 95 % interval (None for the baseline itself); None before it was played. lost: seeds beside these whose
    world was lost. checkpoint: as the user calls it.
    """

    plan: Plan
    rate_hz: float
    speedup: float
    oldest_ms: float
    refused: str = ""
    episodes: int = 0
    success: float | None = None
    low: float | None = None
    high: float | None = None
    above_seq: float | None = None
    above_low: float | None = None
    above_high: float | None = None
    staleness_ms: float | None = None
    hold_share: float | None = None
    lost: int = 0
    checkpoint: str = ""

    @property
    def generation(self) -> Generation:
        return self.checkpoint, self.plan.generation

    @property
    def tried(self) -> int:
        """Seeds that it was played on, to the end or not."""
        return self.episodes + self.lost

    def row(self) -> dict[str, Any]:
        """Flat, for the report."""
        return {**vars(self), "plan": str(self.plan)}


def merit(one: Candidate) -> tuple[bool, int, float, bool, float]:
    """Sort key; better plans sort later: played at all, on more seeds, with more success, seq, faster. All plans use
    the same seeds in the same order, so only dropped or interrupted plans have fewer. A pipeline that gains no success
    is not worth having; its rate alone is no gain, as it may be above that of the observations."""
    success = -1.0 if one.success is None else one.success
    return (not one.refused, one.tried, success, one.plan.mode == "seq", one.rate_hz)


def pareto(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The Pareto front of rate and success among plans that were played to the end, by rate."""
    played = [one for one in candidates if not one.refused and one.success is not None]

    def beaten(one: Candidate) -> bool:
        mine = (one.rate_hz, one.success or 0.0)
        theirs = [(other.rate_hz, other.success or 0.0) for other in played if other is not one]
        return any(rate >= mine[0] and share >= mine[1] and (rate, share) != mine for rate, share in theirs)

    return sorted((one for one in played if not beaten(one)), key=lambda one: one.rate_hz)
