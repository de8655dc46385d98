"""A split by marginal gain, where Nova's falls on a line with the load (equation 5). Not from the paper.

A larger part for decode brings tokens sooner to those that decode, and everything later to everyone: the split is the
one with the least waiting in sum. It depends on how many wait and on how many decode, and it knows how much each size
costs.
"""

from __future__ import annotations

from collections.abc import Mapping

from auras_ros.engine.profile import StageProfile

WEIGHT = 0.8  # swept from 0.5 to 1.2 on the paper's profile: flat between 0.65 and 0.9


class MarginalUnits:
    """bound_ms: no decode beside another stage takes longer, so sizes with which it would are left out. weight: what a
    token sooner is worth, in decodes alone. Raises ValueError if no size keeps the bound."""

    def __init__(self, profile: StageProfile, bound_ms: float, weight: float = WEIGHT) -> None:
        self._worth_ms, self._row_ms = weight * profile.decode, weight * profile.decode_row
        corun = profile.corun
        self._by_vision = _kept({size: (corun[size].vision, corun[size].decode_by_vision) for size in corun}, bound_ms)
        self._by_prefill = _kept(
            {size: (corun[size].prefill, corun[size].decode_by_prefill) for size in corun}, bound_ms
        )

    def beside_vision(self, pending: int, decoding: int) -> int:
        return self._least(self._by_vision, pending, decoding)

    def beside_prefill(self, pending: int, decoding: int) -> int:
        return self._least(self._by_prefill, pending, decoding)

    def _least(self, times: Mapping[int, tuple[float, float]], pending: int, decoding: int) -> int:
        """The size with the least waiting: all wait while the forward runs; those that decode have made tokens
        meanwhile for which they do not wait later."""
        worth_ms = self._worth_ms + (decoding - 1) * self._row_ms

        def waiting_ms(size: int) -> float:
            forward_ms, decode_ms = times[size]
            return (pending + decoding) * forward_ms - decoding * worth_ms * forward_ms / decode_ms

        return min(times, key=waiting_ms)


def _kept(times: dict[int, tuple[float, float]], bound_ms: float) -> dict[int, tuple[float, float]]:
    kept = {size: each for size, each in times.items() if each[1] <= bound_ms}
    if not kept:
        raise ValueError(f"planner: with no split a decode takes {bound_ms:g} ms or less beside another stage")
    return kept
