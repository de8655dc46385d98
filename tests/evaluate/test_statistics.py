"""The Wilson interval against values computed by hand from its definition.

Guards: the normal approximation in its place, which gives no width at 0 or at n.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.evaluate.statistics import Z_95, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # p = 1/2, n = 10, z² = 3.841459: centre 1/2, half z/(1 + 0.3841459) √(0.025 + 0.009603647) = 0.263405
        (5, 10, 0.236593, 0.763407),
        # p = 0: high = z² / (n + z²) = 3.841459 / 13.841459
        (0, 10, 0.0, 0.277533),
        # p = 1: low = n / (n + z²) = 10 / 13.841459
        (10, 10, 0.722467, 1.0),
        # n / (n + z²) = 200 / 203.841459
        (200, 200, 0.981155, 1.0),
        (0, 1, 0.0, 0.793451),
    ],
)
def test_against_values_computed_by_hand(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-6)


@given(st.integers(1, 500), st.floats(0, 1))
def test_its_ends_are_where_the_score_test_just_rejects(trials: int, share: float) -> None:
    """Wilson's definition: |p - bound| = z sqrt(bound (1 - bound) / n)."""
    successes = round(share * trials)
    low, high = wilson(successes, trials)
    assert 0 <= low <= high <= 1
    assert low - 1e-12 <= successes / trials <= high + 1e-12
    for bound in (low, high):
        if 1e-9 < bound < 1 - 1e-9:
            distance = abs(successes / trials - bound)
            assert distance == pytest.approx(Z_95 * math.sqrt(bound * (1 - bound) / trials), rel=1e-6, abs=1e-9)


def test_a_larger_z_is_wider() -> None:
    (low, high), (lower, higher) = wilson(7, 20), wilson(7, 20, z=2.575829)
    assert lower < low < high < higher


@pytest.mark.parametrize(("successes", "trials"), [(-1, 10), (11, 10), (0, 0), (1, 0), (0, -1)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {trials}"):
        wilson(successes, trials)
