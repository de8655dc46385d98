"""A split by marginal gain, where Nova's falls on a line with the load (equation 5). Not from the paper.

A larger part for decode brings tokens sooner to those that decode, and everything later to everyone: the split is the
one with the least waiting in sum. It depends on how many wait and on how many decode, and it knows how much each size
costs.
"""

from __future__ import annotations

from auras_ros.engine.planner import least_units
from auras_ros.engine.profile import StageProfile

# What a token sooner is worth, in decodes alone: with nobody waiting, with many, and how many wait halfway between. On
# the paper's profile more is better below saturation and less beyond it.
ALONE, CROWDED, HALFWAY = 1.0, 0.65, 4


def worth(pending: int) -> float:
    """A token sooner, in decodes alone, while so many wait."""
    return CROWDED + (ALONE - CROWDED) * HALFWAY / (HALFWAY + pending)


class MarginalUnits:
    """bound_ms: no decode beside another stage takes longer. Raises ValueError if no size keeps the bound."""

    def __init__(self, profile: StageProfile, bound_ms: float) -> None:
        self._profile, least = profile, least_units(profile, bound_ms)
        kept = {size: times for size, times in profile.corun.items() if size >= least}
        self._by_vision = {size: (times.vision, times.decode_by_vision) for size, times in kept.items()}
        self._by_prefill = {size: (times.prefill, times.decode_by_prefill) for size, times in kept.items()}

    def beside_vision(self, pending: int, decoding: int) -> int:
        return self._least(self._by_vision, pending, decoding)

    def beside_prefill(self, pending: int, decoding: int) -> int:
        return self._least(self._by_prefill, pending, decoding)

    def _least(self, times: dict[int, tuple[float, float]], pending: int, decoding: int) -> int:
        """The size with the least waiting: all wait while the forward runs; those that decode have made tokens
        meanwhile for which they do not wait later."""
        worth_ms = worth(pending) * self._profile.decode_ms(decoding)

        def waiting_ms(size: int) -> float:
            forward_ms, decode_ms = times[size]
            return (pending + decoding) * forward_ms - decoding * worth_ms * forward_ms / decode_ms

        return min(times, key=waiting_ms)
