"""What a bench keeps: its minutes, and everything else where one part fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from auras_ros.device import DeviceError
from auras_ros.measure import minutes
from auras_ros.measure.minutes import (
    CUT,
    OVER,
    Budget,
    Ends,
    OverError,
    interruptible,
    run_parts,
    run_turns,
    until,
)
from auras_ros.nodes.common.config import ConfigError
from auras_ros.pipeline.plan import PlanError
from auras_ros.report.result import Report


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(minutes, "time", made)
    return made


def test_each_part_gets_its_share_of_what_is_left(clock: Clock) -> None:
    budget, report = Budget(10.0, 3), Report("x")
    assert budget.part(report, "one") == Ends(1200.0, 1600.0)
    clock.now_s = 1300.0  # it took longer than its share
    assert budget.part(report, "two") == Ends(1450.0, 1600.0)
    clock.now_s = 1350.0  # and this one less
    assert budget.part(report, "three") == Ends(1600.0, 1600.0)
    assert report.more == {}


def test_what_there_is_no_time_for_is_named(clock: Clock) -> None:
    report, ran = Report("x"), list[str]()

    def slow(ends: Ends) -> None:
        ran.append("slow")
        clock.now_s = ends.hard_s + 1

    run_parts(report, 1.0, {"slow": slow, "late": slow})
    assert ran == ["slow"]
    assert report.more == {"left_out": [f"late: {OVER}"]}


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no two chunks in 30 s"),
        DeviceError("gone"),
        PlanError("plan: outlasts"),
        MemoryError(),
        ConfigError("mine.yaml: no such parameter"),
        OSError("No space left on device"),
    ],
)
def test_a_part_that_fails_is_named_and_the_others_are_measured(error: Exception) -> None:
    def broken(ends: Ends) -> None:
        raise error

    report = Report("x")
    run_parts(report, 1.0, {"a": broken, "b": lambda ends: report.rows.append({"cores": 1}), "c": broken})
    why = str(error) or repr(error)
    assert report.more == {"failed": [f"a: {why}", f"c: {why}"]}
    assert report.rows == [{"cores": 1}]


def test_an_interrupt_ends_all_parts_with_what_there_is() -> None:
    def interrupt(ends: Ends) -> None:
        raise KeyboardInterrupt

    report = Report("x")
    parts = {"a": lambda ends: report.rows.append({"cores": 1}), "b": interrupt, "c": interrupt}
    run_parts(report, 1.0, parts)
    assert report.rows == [{"cores": 1}]
    assert report.more == {"interrupted": "interrupted while measuring b; finished measurements count"}


def test_the_first_line_of_a_reason_is_enough() -> None:
    report = Report("x")
    report.fail("part", RuntimeError("it ended\nthe last words\nof a process"))
    assert report.more == {"failed": ["part: it ended"]}


def test_a_part_that_the_minutes_cut_is_left_out_and_no_failure() -> None:
    def cut(ends: Ends) -> None:
        raise OverError

    report = Report("x")
    run_parts(report, 1.0, {"a": cut})
    assert report.more == {"left_out": [f"a: {CUT}"]}


def test_a_turn_that_fails_is_named_once_and_the_others_go_on() -> None:
    played, report = list[tuple[str, int]](), Report("x")

    def fails(seeds: Sequence[int]) -> None:
        raise RuntimeError("no such world")

    run_turns(report, [[0, 1], [2]], {"bad": fails, "good": lambda seeds: played.append(("good", seeds[0]))})
    assert report.more == {"failed": ["bad: no such world"]}
    assert played == [("good", 0), ("good", 2)]


def test_the_minutes_end_the_turns_where_they_are(clock: Clock) -> None:
    played, report = list[int](), Report("x")
    say = until(clock.now_s + 2, lambda text: None)

    def play(seeds: Sequence[int]) -> None:
        for seed in seeds:
            say("still at it")
            clock.now_s += 1
            played.append(seed)

    run_turns(report, [[0, 1, 2], [3]], {"a": play, "b": play})
    assert played == [0, 1]
    assert report.more == {"left_out": [f"a, seeds from 0 on, and everything after it: {CUT}"]}


def test_an_interrupt_of_what_is_played_is_said() -> None:
    report = Report("x")
    with interruptible(report):
        raise KeyboardInterrupt
    assert report.more["interrupted"].startswith("interrupted")
