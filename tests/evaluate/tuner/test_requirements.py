"""What is asked for, as a user writes it.

Guards: a multiple taken for a rate; a margin with the wrong sign; a plan that is thrown out at its very bound.
"""

from __future__ import annotations

import pytest

from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.tuner.requirements import Requirements


@pytest.mark.parametrize(
    ("rate", "success", "expected"),
    [
        ("12", "0.8", Requirements(rate_hz=12.0, success=0.8)),
        (" 2x", "seq-0.03", Requirements(rate_of_seq=2.0, below_seq=0.03)),
        ("1.5x", "seq - 0.03", Requirements(rate_of_seq=1.5, below_seq=0.03)),
        (None, "seq", Requirements(below_seq=-0.0)),
        (None, "seq+0.1", Requirements(below_seq=-0.1)),
        (None, None, Requirements()),
    ],
)
def test_what_a_user_writes_is_what_is_meant(rate: str | None, success: str | None, expected: Requirements) -> None:
    assert Requirements.parse(rate, success, None) == expected


@pytest.mark.parametrize(
    ("rate", "success", "age", "named"),
    [
        ("fast", None, None, "rate: expected a value such as 12, or 2x"),
        ("-1x", None, None, "rate: expected"),
        ("inf", None, None, "rate: expected"),
        ("nan", None, None, "rate: expected"),
        (None, "80", None, "success: expected a value such as 0.8"),
        (None, "seq-x", None, "success: expected"),
        (None, "par-0.1", None, "success: expected"),
        (None, None, 0.0, "max age: expected"),
        (None, None, float("nan"), "max age: expected"),
    ],
)
def test_what_cannot_be_meant_is_named(rate: str | None, success: str | None, age: float | None, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Requirements.parse(rate, success, age)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Requirements(rate_hz=10.0), ""),
        (Requirements(rate_hz=10.1), "10.00 chunks/s, wanted 10.1"),
        (Requirements(rate_of_seq=2.0), ""),
        (Requirements(rate_of_seq=2.1), "2.00 times seq's rate, wanted 2.1"),
        (Requirements(max_age_ms=300.0), ""),
        (Requirements(max_age_ms=299.0), "actions get 300 ms old, wanted at most 299"),
        (Requirements(), ""),
    ],
)
def test_rate_and_age_decide_whether_a_plan_is_played(wanted: Requirements, why: str) -> None:
    assert wanted.before_playing(rate_hz=10.0, seq_rate_hz=5.0, oldest_ms=300.0) == why


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Requirements(success=0.5), ""),
        (Requirements(success=0.51), "success 50.0%, wanted 51.0%"),
        (Requirements(below_seq=0.125), ""),
        (Requirements(below_seq=0.0625), "success -12.5 points against seq, wanted -6.2"),
        (Requirements(), ""),
    ],
)
def test_success_decides_whether_it_is_chosen(wanted: Requirements, why: str) -> None:
    assert wanted.after_playing(success=0.5, above_seq=-0.125) == why


def test_it_is_said_in_words() -> None:
    assert Requirements.parse("2x", "seq-0.03", 500.0).words() == (
        "rate >= 2 x seq, success >= seq -3 points, age <= 500 ms"
    )
    assert Requirements().words() == "no requirements"
