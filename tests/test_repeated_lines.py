"""Lines about what lasts: one when something changes, then one a minute with the count. Time is the test's."""

from __future__ import annotations

import pytest

from auras_ros import repeated_lines
from auras_ros.repeated_lines import CHANGES, EVERY_S, RepeatedLines, set_log_interval

TEN_MINUTES_S = 600


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> RepeatedLines:
    return RepeatedLines(clock=clock)


def test_a_refusal_thirty_times_a_second_is_a_line_a_minute_that_counts_the_others(
    lines: RepeatedLines, clock: Clock
) -> None:
    said = []
    for number in range(30 * TEN_MINUTES_S):
        clock.now_s += 1 / 30
        if line := lines.line("chunk", f"chunk {number} refused: stale"):
            said.append(line)
    assert said[0] == "chunk 0 refused: stale"
    assert len(said) == TEN_MINUTES_S / EVERY_S
    counts = [int(line.partition("(")[2].split()[0]) for line in said[1:]]
    assert {abs(count - 30 * EVERY_S) <= 1 for count in counts} == {True}
    assert said[1].endswith("more such lines in the last 60 s)")


def test_a_change_is_said_at_once_however_long_the_other_lasted(lines: RepeatedLines, clock: Clock) -> None:
    assert lines.line("top", "top: stale: 400 ms old", cause="stale")
    for _ in range(1000):
        clock.now_s += 0.5
        lines.line("top", "top: stale: 400 ms old", cause="stale")
    assert lines.line("top", "top: bad_size: 2 x 6", cause="bad_size").startswith("top: bad_size: 2 x 6")
    assert lines.line("wrist", "wrist: stale", cause="stale") == "wrist: stale"


def test_numbers_in_a_text_are_no_change(lines: RepeatedLines) -> None:
    assert lines.line("top", "top: 400.5 ms old, limit 350 ms")
    assert not lines.line("top", "top: 12 ms old, limit 350 ms")
    assert lines.line("top", "top: gone")


def test_what_comes_and_goes_all_the_time_is_few_lines(lines: RepeatedLines, clock: Clock) -> None:
    """A camera of 1 Hz with an age limit of 350 ms was two lines a second, for ever."""
    said = 0
    for _ in range(TEN_MINUTES_S):
        for text in ("no observation: top: stale", "observations are back"):
            clock.now_s += 0.5
            said += bool(lines.line("observation", text))
    assert CHANGES < said <= 15


def test_after_a_quiet_minute_it_is_the_first_again(lines: RepeatedLines, clock: Clock) -> None:
    for _ in range(3):
        for number in range(CHANGES):
            assert lines.line("top", "abcdefgh"[number])
        assert not lines.line("top", "z")
        clock.now_s += EVERY_S
    assert lines.line("top", "z") == "z (1 more such lines in the last 60 s)"


def test_a_state_that_goes_on_is_repeated_and_not_counted(lines: RepeatedLines, clock: Clock) -> None:
    said = []
    for _ in range(TEN_MINUTES_S):
        clock.now_s += 1.0
        if line := lines.line("subscribers", "a base takes another type", is_event=False):
            said.append(line)
    assert said == ["a base takes another type"] * 10


def test_a_node_sets_the_interval_of_its_process(lines: RepeatedLines, clock: Clock) -> None:
    try:
        set_log_interval(1.0)
        assert lines.line("top", "a")
        clock.now_s += 0.9
        assert not lines.line("top", "a")
        clock.now_s += 0.2
        assert lines.line("top", "a")
    finally:
        set_log_interval(EVERY_S)
    assert repeated_lines._process_every_s == EVERY_S
