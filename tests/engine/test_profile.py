"""A profile is what its file says, or is refused by name; between its times it is linear.

Guards: a time that is lost or read as another one; a file that is taken although a time in it makes no sense; a forward
whose time falls below zero beyond the last entry.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.profile import CorunTimes, StageProfile, read_profile
from tests.engine.simulated import SMALL


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    SMALL.write(tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == SMALL
    assert json.loads((tmp_path / "profile.json").read_text())["corun"]["4"]["decode_by_prefill"] == 26.0


def test_sizes_rise() -> None:
    assert replace(SMALL, corun=dict.fromkeys((6, 2, 4), SMALL.shared)).sizes == (2, 4, 6)


@pytest.mark.parametrize(
    ("tokens", "time"), [(1, 20), (10, 20), (55, 30), (100, 40), (150, 70), (200, 100), (201, 100.6), (300, 160)]
)
def test_prefill_is_linear_between_entries_and_beyond_the_last(tokens: int, time: float) -> None:
    """Fewer tokens than the first entry take as long as that: weights are read once."""
    assert SMALL.prefill_ms(tokens) == pytest.approx(time)


@pytest.mark.parametrize(("tokens", "time"), [(1, 40), (100, 40), (101, 40.4), (250, 100)])
def test_prefill_of_a_single_entry_is_proportional_beyond_it(tokens: int, time: float) -> None:
    assert replace(SMALL, prefill={100: 40.0}).prefill_ms(tokens) == pytest.approx(time)


def test_times_that_fall_are_not_followed_beyond_the_last_entry() -> None:
    falling = replace(SMALL, prefill={100: 40.0, 200: 30.0})
    assert falling.prefill_ms(150) == pytest.approx(35)
    assert falling.prefill_ms(1000) == 30


def test_each_further_row_of_a_decode_takes_as_long() -> None:
    assert [SMALL.decode_ms(rows) for rows in (1, 2, 10)] == [10, 11, 19]


BAD: list[tuple[str, Any]] = [
    *(((name, value)) for name in ("vision", "decode") for value in (0.0, -1.0, float("nan"), float("inf"), "1", True)),
    *(((name, value)) for name in ("decode_row", "token_row") for value in (-0.1, float("nan"), None)),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_time_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^profile: {name}: "):
        replace(SMALL, **{name: value})


@pytest.mark.parametrize("name", [each.name for each in fields(CorunTimes)])
def test_a_time_beside_another_stage_is_refused_by_name(name: str) -> None:
    bad = replace(SMALL.shared, **{name: 0.0})
    with pytest.raises(ValueError, match=rf"^profile: shared: {name}: a time of 0"):
        replace(SMALL, shared=bad)
    with pytest.raises(ValueError, match=rf"^profile: corun: 4: {name}: a time of 0"):
        replace(SMALL, corun={**SMALL.corun, 4: bad})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefill": {}}, "prefill: no time for the prompt of 100 tokens"),
        ({"prefill": {99: 1.0}}, "prefill: no time for the prompt of 100 tokens"),
        ({"prefill": {0: 1.0, 100: 1.0}}, "prefill: 0 tokens"),
        ({"prefill": {50: -1.0, 100: 1.0}}, "prefill: 50: -1.0 is not a time"),
        ({"corun": {0: SMALL.shared}}, "corun: 0 units leave nothing, of 10"),
        ({"corun": {10: SMALL.shared}}, "corun: 10 units leave nothing, of 10"),
        ({"units": 6}, "corun: 6 units leave nothing, of 6"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^profile: {message}$"):
        replace(SMALL, **changes)


def test_rows_may_cost_nothing() -> None:
    assert replace(SMALL, decode_row=0.0, token_row=0.0).decode_ms(9) == 10


@pytest.mark.parametrize("name", [each.name for each in fields(StageProfile)])
def test_a_file_that_lacks_a_field_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "short.json"
    path.write_text(json.dumps({key: value for key, value in asdict(SMALL).items() if key != name}))
    with pytest.raises(ValueError, match=f"short.json: not a profile: .*{name}"):
        read_profile(path)


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"prefill": 3}', '{"prefill": {"a": 1}}'])
def test_what_is_no_profile_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json: not a profile: "):
        read_profile(path)
    with pytest.raises(ValueError, match=r"none\.json: not a profile: "):
        read_profile(tmp_path / "none.json")


def test_a_field_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_text(json.dumps({**asdict(SMALL), "colour": 3}))
    with pytest.raises(ValueError, match=r"not a profile: .*colour"):
        read_profile(path)
