"""From a profile to the split of the device between decode and the other stages (Nova III-C)."""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros.engine.profile import StageProfile

LEAST_AT = 4  # pending requests at which decode has its fewest units (V-A5)


@dataclass(frozen=True)
class IdealPipeline:
    """What a split gives when nobody waits and no stage is ever idle (Nova III-C1). by_vision, by_prefill: units of
    decode beside each of them."""

    by_vision: int
    by_prefill: int
    e2e_ms: float
    throughput_hz: float


@dataclass(frozen=True)
class SplitPlan:
    """Units of decode by the number of pending requests, with values of its own for each pair (Nova V-A5). least: never
    fewer. sizes: that the device has prepared."""

    by_vision: int
    by_prefill: int
    beta_vision: float
    beta_prefill: float
    least: int
    sizes: tuple[int, ...]

    def beside_vision(self, pending: int, decoding: int) -> int:
        return self._at(self.by_vision, self.beta_vision, pending)

    def beside_prefill(self, pending: int, decoding: int) -> int:
        return self._at(self.by_prefill, self.beta_prefill, pending)

    def _at(self, most: int, beta: float, pending: int) -> int:
        """Equation 5, and of the prepared sizes the smallest that is not below it."""
        wanted = max(self.least, most - beta * (pending - 1))
        return next((size for size in self.sizes if size >= wanted), self.sizes[-1])


def ideal(profile: StageProfile, by_vision: int, by_prefill: int, tokens: float) -> IdealPipeline:
    """Equations 1, 2 and 4. tokens: of an answer, in the mean."""
    vision, prefill = profile.corun[by_vision], profile.corun[by_prefill]
    encode_ms = vision.vision + prefill.prefill
    share = vision.vision / encode_ms
    decode_ms = share * vision.decode_by_vision + (1 - share) * prefill.decode_by_prefill
    return IdealPipeline(by_vision, by_prefill, encode_ms + tokens * decode_ms, 1e3 / encode_ms)


def all_ideal(profile: StageProfile, tokens: float, least: int = 0) -> list[IdealPipeline]:
    """Of every pair of splits."""
    sizes = [size for size in profile.sizes if size >= least]
    return [ideal(profile, vision, prefill, tokens) for vision in sizes for prefill in sizes]


def least_units(profile: StageProfile, bound_ms: float) -> int:
    """S_min: the fewest units with which a decode of one request takes no longer than the bound beside another stage;
    further rows, and a forward that it waits for, come on top (V-A5: "theoretical"). Raises ValueError if none do."""
    for size in profile.sizes:
        if max(profile.corun[size].decode_by_vision, profile.corun[size].decode_by_prefill) <= bound_ms:
            return size
    raise ValueError(f"planner: with no split a decode takes {bound_ms:g} ms or less beside another stage")


def best_split(profile: StageProfile, tokens: float, least: int = 0) -> IdealPipeline:
    """S_0 of both pairs: equation 3, by enumeration."""
    return min(all_ideal(profile, tokens, least), key=lambda each: each.e2e_ms)


def pareto(candidates: list[IdealPipeline]) -> list[IdealPipeline]:
    """Those that no other one beats in both, latency and throughput; the quickest answer first (Nova figure 6)."""
    front: list[IdealPipeline] = []
    for each in sorted(candidates, key=lambda each: (each.e2e_ms, -each.throughput_hz)):
        if not front or each.throughput_hz > front[-1].throughput_hz:
            front.append(each)
    return front


def make_plan(profile: StageProfile, tokens: float, bound_ms: float) -> SplitPlan:
    """The plan of a profile. Both pairs come down from S_0 to S_min at LEAST_AT pending requests, which gives the
    paper's 4 and 6 units a request on its A6000. tokens: of an answer, in the mean. bound_ms: between tokens. Raises
    ValueError if no split keeps the bound."""
    least = least_units(profile, bound_ms)
    best = best_split(profile, tokens, least)
    vision, prefill = ((most - least) / (LEAST_AT - 1) for most in (best.by_vision, best.by_prefill))
    return SplitPlan(best.by_vision, best.by_prefill, vision, prefill, least, profile.sizes)


def queueing_delay_s(rate_hz: float, mean_s: float, mean_square_s2: float) -> float | None:
    """Equation 6: the mean wait in an M/G/1 queue whose service is vision and prefill. None beyond saturation."""
    load = rate_hz * mean_s
    return None if load >= 1 else rate_hz * mean_square_s2 / (2 * (1 - load))
