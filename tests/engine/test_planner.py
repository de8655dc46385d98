"""Equations 1 to 6 against numbers worked out by hand, and what must hold of every plan.

Guards: a share of the wrong stage; a split below S_min, or one that the device has not prepared; a bound that is said
to be kept and is not; a point on the frontier that another one beats.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from auras_ros.engine.planner import (
    IdealPipeline,
    SplitPlan,
    all_ideal,
    best_split,
    ideal,
    least_units,
    make_plan,
    pareto,
    queueing_delay_s,
)
from auras_ros.engine.profile import CorunTimes, StageProfile
from tests.engine.simulated import SMALL

pytest.importorskip("hypothesis")
from hypothesis import given
from hypothesis import strategies as st

PLAN = SplitPlan(24, 30, 4, 6, 12, tuple(range(4, 64, 2)))
TIMES = st.floats(1, 100)
CORUNS = st.builds(CorunTimes, TIMES, TIMES, TIMES, TIMES)
PROFILES = st.dictionaries(st.integers(1, 9), CORUNS, min_size=1, max_size=5).map(
    lambda corun: replace(SMALL, corun=corun)
)


def test_equations_1_2_and_4_by_hand() -> None:
    """Vision 110 ms beside 4 units of decode, prefill 75 beside 6: decode spends 110/185 of its time beside vision, at
    20 ms, and 75/185 beside prefill, at 16 ms."""
    made = ideal(SMALL, 4, 6, tokens=37)
    assert (made.by_vision, made.by_prefill) == (4, 6)
    assert made.e2e_ms == pytest.approx(110 + 75 + 37 * (110 / 185 * 20 + 75 / 185 * 16))
    assert made.e2e_ms == pytest.approx(865)
    assert made.throughput_hz == pytest.approx(1000 / 185)


def test_equation_3_takes_the_least_of_all_pairs() -> None:
    assert len(all_ideal(SMALL, 5)) == 9
    assert {(each.by_vision, each.by_prefill) for each in all_ideal(SMALL, 5, least=4)} == {
        (4, 4), (4, 6), (6, 4), (6, 6)
    }  # fmt: skip
    few, many = best_split(SMALL, tokens=1), best_split(SMALL, tokens=100)
    assert (few.by_vision, few.by_prefill) == (2, 2)  # 90 + 45 + (90 * 40 + 45 * 44) / 135
    assert few.e2e_ms == pytest.approx(176.33, abs=0.01)
    assert (many.by_vision, many.by_prefill) == (6, 6)  # an answer of many tokens waits for decode
    assert best_split(SMALL, tokens=1, least=4).by_vision == 4


@given(PROFILES, st.floats(0, 200))
def test_no_pair_is_quicker_than_the_best_one(profile: StageProfile, tokens: float) -> None:
    least = min(each.e2e_ms for each in all_ideal(profile, tokens))
    assert best_split(profile, tokens).e2e_ms == least


@pytest.mark.parametrize(
    ("pending", "by_vision", "by_prefill"),
    [(1, 24, 30), (2, 20, 24), (3, 16, 18), (4, 12, 12), (5, 12, 12), (99, 12, 12)],
)
def test_equation_5_with_the_papers_numbers(pending: int, by_vision: int, by_prefill: int) -> None:
    """V-A5: 12 at four pending requests in both."""
    assert (PLAN.beside_vision(pending, 1), PLAN.beside_prefill(pending, 1)) == (by_vision, by_prefill)


def test_a_split_is_the_smallest_prepared_one_that_is_not_below_the_wanted() -> None:
    plan = replace(PLAN, beta_vision=3, beta_prefill=2.5, sizes=(8, 12, 16, 20, 24))
    assert [plan.beside_vision(pending, 1) for pending in range(1, 7)] == [
        24,
        24,
        20,
        16,
        12,
        12,
    ]  # 24, 21, 18, 15, 12, 9
    assert plan.beside_prefill(1, 1) == 24  # 30 was not prepared: the most there is


@given(
    st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted),
    st.data(),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_a_plan_falls_with_the_load_and_never_below_the_least(
    sizes: list[int], data: st.DataObject, beta_vision: float, beta_prefill: float
) -> None:
    least = data.draw(st.sampled_from(sizes))
    most = st.sampled_from([size for size in sizes if size >= least])
    plan = SplitPlan(data.draw(most), data.draw(most), beta_vision, beta_prefill, least, tuple(sizes))
    for at, most_units in ((plan.beside_vision, plan.by_vision), (plan.beside_prefill, plan.by_prefill)):
        units = [at(pending, 1) for pending in range(1, 30)]
        assert units[0] == most_units
        assert all(few <= more for more, few in pairwise(units))
        assert set(units) <= {size for size in sizes if size >= least}


def test_the_least_is_the_fewest_units_that_keep_the_bound_beside_both() -> None:
    assert least_units(SMALL, 44) == 2
    assert least_units(SMALL, 43.9) == 4  # 44 ms beside prefill
    assert least_units(SMALL, 26) == 4
    assert least_units(SMALL, 25.9) == 6
    assert least_units(SMALL, 16) == 6


def test_a_bound_that_no_split_keeps_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^planner: with no split a decode takes 15\.9 ms or less beside"):
        make_plan(SMALL, 5, 15.9)
    with pytest.raises(ValueError, match="with no split a decode takes 80 ms"):
        make_plan(replace(SMALL, corun={}), 5, 80)


def test_a_plan_of_a_profile() -> None:
    """At four pending requests both pairs have come down to S_min."""
    assert make_plan(SMALL, 1, 30) == SplitPlan(4, 4, 0, 0, 4, (2, 4, 6))
    assert make_plan(SMALL, 100, 50) == SplitPlan(6, 6, 4 / 3, 4 / 3, 2, (2, 4, 6))


@given(PROFILES, st.floats(0, 100))
def test_the_frontier_is_what_no_other_pair_beats(profile: StageProfile, tokens: float) -> None:
    every = all_ideal(profile, tokens)
    front = pareto(every)
    assert best_split(profile, tokens).e2e_ms == front[0].e2e_ms
    assert max(each.throughput_hz for each in every) == front[-1].throughput_hz
    for one in front:
        assert not any(beats(other, one) for other in every)
    for one in every:
        assert one in front or any(beats(other, one) or same(other, one) for other in front)
    assert all(a.e2e_ms < b.e2e_ms and a.throughput_hz < b.throughput_hz for a, b in pairwise(front))


def beats(one: IdealPipeline, other: IdealPipeline) -> bool:
    return one.e2e_ms <= other.e2e_ms and one.throughput_hz >= other.throughput_hz and not same(one, other)


def same(one: IdealPipeline, other: IdealPipeline) -> bool:
    return (one.e2e_ms, one.throughput_hz) == (other.e2e_ms, other.throughput_hz)


def test_more_throughput_is_had_with_fewer_units_of_decode() -> None:
    front = pareto(all_ideal(SMALL, 5))
    assert [(each.by_vision, each.by_prefill) for each in front] == [(4, 4), (4, 2), (2, 4), (2, 2)]


@pytest.mark.parametrize("fixed", [True, False])
def test_equation_6_is_the_mean_wait_of_a_queue(fixed: bool) -> None:
    """Against a queue that is played through, customer by customer; services of one or of two lengths."""
    drawn = random.Random(1)
    rate_hz, lengths = 0.5, (1.2, 1.2) if fixed else (0.4, 2.0)
    free_s = now_s = waited_s = 0.0
    count = 200_000
    for _ in range(count):
        now_s += drawn.expovariate(rate_hz)
        begins_s = max(now_s, free_s)
        waited_s += begins_s - now_s
        free_s = begins_s + drawn.choice(lengths)
    mean_square = sum(each**2 for each in lengths) / 2
    expected = queueing_delay_s(rate_hz, 1.2, mean_square)
    assert expected == pytest.approx(0.5 * mean_square / 0.8)
    assert waited_s / count == pytest.approx(expected, rel=0.05)


def test_equation_6_has_no_answer_beyond_saturation() -> None:
    assert queueing_delay_s(0.5, 2.0, 4.0) is None
    assert queueing_delay_s(0.8, 1.35, 2.0) is None  # table V's last column
    assert queueing_delay_s(0.0, 2.0, 4.0) == 0
