"""The split by marginal gain: what it weighs, and that it keeps the bound.

Guards: a size that breaks the bound on the time between tokens; a split that grows with the queue or shrinks with what
decodes; a choice that is not the one with the least waiting.
"""

from __future__ import annotations

import pytest

from auras_ros.bench.nova import a6000
from auras_ros.engine.marginal import ALONE, CROWDED, MarginalUnits, worth
from auras_ros.engine.planner import least_units

PROFILE = a6000.profile()
UNITS = MarginalUnits(PROFILE, 250.0)


def waiting_ms(size: int, pending: int, decoding: int) -> float:
    """By hand: everyone waits for the forward; each token that comes meanwhile is worth so much to its request."""
    times = PROFILE.corun[size]
    tokens = decoding * times.vision / times.decode_by_vision
    return (pending + decoding) * times.vision - tokens * worth(pending) * PROFILE.decode_ms(decoding)


@pytest.mark.parametrize("pending", [1, 3, 8, 40])
@pytest.mark.parametrize("decoding", [1, 3, 12])
def test_it_is_the_size_with_the_least_waiting(pending: int, decoding: int) -> None:
    chosen = UNITS.beside_vision(pending, decoding)
    kept = [size for size in PROFILE.sizes if PROFILE.corun[size].decode_by_vision <= 250.0]
    assert waiting_ms(chosen, pending, decoding) == min(waiting_ms(size, pending, decoding) for size in kept)


def test_decode_gets_less_the_more_wait_and_more_the_more_decode() -> None:
    for units in (UNITS.beside_vision, UNITS.beside_prefill):
        by_pending = [units(pending, 3) for pending in range(1, 40)]
        by_decoding = [units(4, decoding) for decoding in range(1, 20)]
        assert by_pending == sorted(by_pending, reverse=True)
        assert by_decoding == sorted(by_decoding)
        assert by_pending[0] > by_pending[-1]
        assert by_decoding[0] < by_decoding[-1]


def test_a_token_is_worth_less_the_more_wait() -> None:
    values = [worth(pending) for pending in range(200)]
    assert values == sorted(values, reverse=True)
    assert values[0] == ALONE
    assert values[4] == pytest.approx((ALONE + CROWDED) / 2)
    assert CROWDED < values[-1] < CROWDED + 0.01


@pytest.mark.parametrize("bound_ms", [60.0, 80.0, 150.0, 250.0])
def test_no_decode_takes_longer_than_the_bound(bound_ms: float) -> None:
    units = MarginalUnits(PROFILE, bound_ms)
    for pending in (1, 10, 100):
        assert PROFILE.corun[units.beside_vision(pending, 2)].decode_by_vision <= bound_ms
        assert PROFILE.corun[units.beside_prefill(pending, 2)].decode_by_prefill <= bound_ms
    assert units.beside_vision(100, 1) == least_units(PROFILE, bound_ms)


def test_a_bound_that_no_size_keeps_is_refused() -> None:
    with pytest.raises(ValueError, match="with no split a decode takes 20 ms or less"):
        MarginalUnits(PROFILE, 20.0)
