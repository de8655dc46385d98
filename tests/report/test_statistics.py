"""Intervals against values computed by hand from their definitions, and against what they promise.

Guards: the normal approximation in their place, which gives no width at 0 or at n; pairs treated as independent.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.report.statistics import Z_95, mean, paired_by_seed, paired_difference, quantile, student, wilson


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


@pytest.mark.parametrize(
    ("counts", "difference", "low", "high"),
    [
        # p = q = 25/50: Wilson half width 0.133552; phi = (625 - 25) / 625 = 0.96; half √(2 - 1.92) = 0.282843 of it
        ((25, 0, 0, 25), 0.0, -0.037774, 0.037774),
        # p = q = 15/30: half width 0.168458; phi = (100 - 25 - 15) / 225 = 0.266667; √(2 - 0.533333) = 1.211060
        ((10, 5, 5, 10), 0.0, -0.204013, 0.204013),
        # no success at all: phi is 0, one end of each Wilson interval is 0, the other 0.277533
        ((0, 0, 0, 10), 0.0, -0.277533, 0.277533),
        # 1.0 (Wilson from 0.928653) less 0.0 (to 0.071347): below, √2 * 0.071347; above, the end of the scale
        ((0, 50, 0, 0), 1.0, 0.899100, 1.0),
        # Newcombe's own table: 48 of 50 less 38 of 50
        ((36, 12, 2, 0), 0.20, 0.0569, 0.3404),
    ],
)
def test_paired_differences_against_values_computed_by_hand(
    counts: tuple[int, int, int, int], difference: float, low: float, high: float
) -> None:
    assert paired_difference(*counts) == pytest.approx((difference, low, high), abs=6e-5)


@given(*[st.integers(0, 60)] * 4)
def test_a_paired_difference_is_inside_its_interval_and_turns_with_its_sides(a: int, b: int, c: int, d: int) -> None:
    if a + b + c + d == 0:
        return
    difference, low, high = paired_difference(a, b, c, d)
    assert -1 <= low <= difference <= high <= 1
    assert difference == pytest.approx((b - c) / (a + b + c + d))
    assert paired_difference(a, c, b, d) == pytest.approx((-difference, -high, -low))


def test_pairs_that_agree_say_more_than_pairs_that_do_not() -> None:
    """80 of 100 against 80 of 100: most pairs alike, or as if drawn apart."""
    _, low, high = paired_difference(78, 2, 2, 18)
    _, lower, higher = paired_difference(64, 16, 16, 4)
    assert high - low < 0.6 * (higher - lower)


@pytest.mark.parametrize("shares", [(0.8, 0.05, 0.05, 0.1), (0.6, 0.2, 0.1, 0.1), (0.9, 0.06, 0.02, 0.02)])
def test_the_paired_interval_covers_the_truth_as_often_as_it_says(shares: tuple[float, ...]) -> None:
    """1,500 evaluations of 100 seeds each: 95 % would be 1,425; three standard deviations are 25."""
    truth = shares[1] - shares[2]
    drawn = np.random.default_rng(0).multinomial(100, shares, size=1500)
    covered = 0
    for counts in drawn:
        _, low, high = paired_difference(*map(int, counts))
        covered += low <= truth <= high
    assert 0.933 < covered / len(drawn) < 0.985


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (3, -1, 2, 2)])
def test_impossible_tables_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="four counts of at least 0"):
        paired_difference(*counts)


def test_quantiles_and_means_of_counts() -> None:
    counts = [0, 98, 1, 0, 1]  # 98 ones, a two and a four
    assert [quantile(counts, share) for share in (0.5, 0.98, 0.99, 0.991, 1.0)] == [1, 1, 2, 4, 4]
    assert mean(counts) == pytest.approx(1.04)
    assert quantile([], 0.5) is None
    assert mean([0, 0]) is None
    with pytest.raises(ValueError, match=r"in \(0, 1\], got 0"):
        quantile(counts, 0)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_the_least_value_that_reaches_its_share(values: list[int], share: float) -> None:
    found = quantile([values.count(v) for v in range(31)], share)
    assert found is not None
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_seeds_are_paired_by_their_number() -> None:
    """Both at 5; only the first at 1 and 2; only the second at 9; seed 7 has no part in it."""
    first, second = {1: True, 2: True, 5: True, 9: False}, {9: True, 7: True, 5: True, 2: False, 1: False}
    assert paired_by_seed(first, second) == paired_difference(1, 2, 1, 0)
    with pytest.raises(KeyError, match="7"):
        paired_by_seed(second, first)


@pytest.mark.parametrize(("count", "t"), [(2, 12.7062), (3, 4.3027), (9, 2.3060), (10, 2.2622), (31, 2.0423)])
def test_a_mean_has_students_interval(count: int, t: float) -> None:
    """Of values with a mean of 5 whose deviation is 1; t: published tables, two-sided 95 %."""
    values = [5 + (number - (count - 1) / 2) for number in range(count)]
    deviation = float(np.std(values, ddof=1))
    values = [5 + (each - 5) / deviation for each in values]
    mean, low, high = student(values)
    assert mean == pytest.approx(5)
    assert (high - 5, 5 - low) == pytest.approx((t / count**0.5,) * 2, rel=2e-4)


def test_one_value_has_no_interval() -> None:
    with pytest.raises(ValueError, match="an interval needs two values at least, got 1"):
        student([1.0])
