"""The last guard: nothing beyond limits or rates, and NaN never slips through a comparison."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import ChunkRefusal, ContractError, Limits, Rejected

TICK_NS = 10_000_000


@pytest.fixture(scope="module")
def limits(make: SimpleNamespace) -> Limits:
    """a: free position, r: position at 500/s (5 a tick), v: velocity (acceleration 1 a tick), d: increments
    (2 a tick)."""
    rules = make.contract(
        make.channel("a"),
        make.channel("r", max_rate=500.0),
        make.channel("v", "velocity", max_rate=100.0),
        make.channel("d", "delta_previous", max_rate=200.0),
    )
    return Limits(rules, TICK_NS)


EVERYTHING = st.floats(allow_nan=True, allow_infinity=True)


@given(wanted=st.lists(EVERYTHING, min_size=4, max_size=4), seed=st.integers(0, 1000))
def test_whatever_is_wanted_the_guard_keeps_value_and_rate(limits: Limits, wanted: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    anchor = np.append(rng.uniform(-100, 100, 3), 0.0)
    values = limits.guard(np.array(wanted), anchor)
    if not np.isfinite(wanted).all():
        assert values is None
        return
    assert values is not None
    assert np.isfinite(values).all()
    assert (abs(values) <= 100.0).all()
    assert abs(values[1] - anchor[1]) <= 5.0 + 1e-9
    assert abs(values[2] - anchor[2]) <= 1.0 + 1e-9
    assert abs(values[3]) <= 2.0 + 1e-9
    low = np.maximum(-100.0, anchor - [np.inf, 5.0, 1.0, 2.0])
    high = np.minimum(100.0, anchor + [np.inf, 5.0, 1.0, 2.0])
    np.testing.assert_allclose(values, np.clip(wanted, low, high))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", range(4))
def test_one_bad_value_is_enough(limits: Limits, bad: float, where: int) -> None:
    """np.clip(nan, low, high) is nan: finiteness must be asked for by itself."""
    wanted = np.zeros(4)
    wanted[where] = bad
    assert limits.guard(wanted, np.zeros(4)) is None


def test_without_an_anchor_only_the_rate_is_open(limits: Limits) -> None:
    values = limits.guard(np.array([500.0, 50.0, 50.0, 50.0]), limits.rest())
    assert values is not None
    assert values.tolist() == [100.0, 50.0, 1.0, 2.0]


def test_at_rest_positions_are_unknown_and_rates_zero(limits: Limits) -> None:
    np.testing.assert_array_equal(limits.rest(), [np.nan, np.nan, 0.0, 0.0])


def test_hold_needs_a_known_position(limits: Limits) -> None:
    assert limits.hold(limits.rest()) is None
    assert limits.hold(np.array([1.0, np.nan, 3.0, 0.0])) is None
    held = limits.hold(np.array([1.0, 2.0, 3.0, 0.0]))
    assert held is not None
    assert held.tolist() == [1.0, 2.0, 0.0, 0.0]


def test_a_hold_value_is_no_excuse_for_a_jump_from_an_unknown_place(make: SimpleNamespace) -> None:
    for policy in ({"hold": "value", "hold_value": 7.0}, {"hold": "zero"}):
        limits = Limits(make.contract(make.channel(**policy)), TICK_NS)
        assert limits.hold(np.array([np.nan])) is None
        held = limits.hold(np.array([50.0]))
        assert held is not None
        assert held.tolist() == [policy.get("hold_value", 0.0)]


def screened(limits: Limits, value: float, used: bool = True) -> Any:
    values = np.zeros((3, 4))
    values[1, 2] = value
    verdict = limits.screen(values, np.full((3, 4), used))
    return verdict, values[1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_screening_names_step_and_channel_of_what_is_not_finite(limits: Limits, bad: float) -> None:
    verdict, _ = screened(limits, bad)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is ChunkRefusal.NON_FINITE
    assert "step 1, channel 'v'" in verdict.detail


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_hair_beyond_is_clipped_and_counted_more_is_refused(limits: Limits, sign: int) -> None:
    """The range is 200 and the tolerance 0.02: a hair is 4."""
    assert screened(limits, sign * 100.0) == (0, sign * 100.0)
    assert screened(limits, sign * 103.9) == (1, sign * 100.0)
    verdict, _ = screened(limits, sign * 104.1)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is ChunkRefusal.OVER_LIMIT
    assert "step 1, channel 'v'" in verdict.detail


@pytest.mark.parametrize("bad", [np.nan, 1e9])
def test_what_is_never_executed_is_not_judged(limits: Limits, bad: float) -> None:
    verdict, _ = screened(limits, bad, used=False)
    assert verdict == 0


def test_measured_positions_are_checked(limits: Limits) -> None:
    """Neither a rate nor an increment has one: a joint's position is no speed."""
    anchor = limits.measured(np.array([np.nan, 103.0, 5.0, 77.0]))
    assert isinstance(anchor, np.ndarray)
    np.testing.assert_array_equal(anchor, [np.nan, 100.0, np.nan, np.nan])
    for bad in ([0.0, 105.0, 0.0, 0.0], [0.0, np.inf, 0.0, 0.0], [0.0, -np.inf, 0.0, 0.0]):
        verdict = limits.measured(np.array(bad))
        assert isinstance(verdict, Rejected)
        assert verdict.reason is ChunkRefusal.BAD_POSITION
        assert "'r'" in verdict.detail
    verdict = limits.measured(np.zeros(3))
    assert isinstance(verdict, Rejected)
    assert "shape" in verdict.detail


@pytest.mark.parametrize("tolerance", [-0.1, 1.5, float("nan")])
def test_the_tolerance_is_a_fraction(make: SimpleNamespace, tolerance: float) -> None:
    with pytest.raises(ContractError, match="clip_tolerance"):
        Limits(make.contract(), TICK_NS, tolerance)
