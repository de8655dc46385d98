"""A bench's time budget, and its results if a part of it fails.

A part that fails is named in the report with its reason, and so is one for which no time was left; the others are
measured and written. If time is short there are fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from auras_ros.pipeline.plan import PlanError
from auras_ros.report.result import Report, Say

# DeviceError and CUDA's out of memory are RuntimeErrors, ConfigError is a ValueError; options are checked before.
FAILURES = (RuntimeError, PlanError, MemoryError, ValueError, OSError)
OVER = "not begun: the bench's minutes were over (--minutes)"
CUT = "not finished: the bench's minutes were over (--minutes)"

MeasureStep = Callable[["Ends"], None]
Turn = Callable[[Sequence[int]], None]


class OverError(Exception):
    """The bench's minutes are over, by default in the middle of a part (CUT). Not a failure."""


class Ends(NamedTuple):
    """Deadlines in seconds of the monotonic clock. After soft_s no further round begins; after hard_s not even the
    first one is finished."""

    soft_s: float
    hard_s: float


class Budget:
    """The minutes of a whole bench, shared by its parts: each gets an equal share of the remaining time."""

    def __init__(self, minutes: float, parts: int) -> None:
        self._end_s, self._left = time.monotonic() + 60 * minutes, parts

    def part(self, report: Report, name: str) -> Ends | None:
        """The deadlines of the next part; None if no time is left for it, which is noted in the report."""
        now_s = time.monotonic()
        parts, self._left = max(1, self._left), self._left - 1
        if now_s >= self._end_s:
            report.leave_out(name, OVER)
            return None
        return Ends(now_s + (self._end_s - now_s) / parts, self._end_s)


@contextmanager
def attempt(report: Report, name: str) -> Iterator[None]:
    """Run a part that may fail without stopping the others: the first line of its error goes to the report."""
    try:
        yield
    except OverError as over:
        report.leave_out(name, str(over) or CUT)
    except FAILURES as error:
        report.fail(name, error)


def run_parts(report: Report, minutes: float, parts: Mapping[str, MeasureStep]) -> None:
    """Run each part with its share of the minutes. Ctrl-C ends with the results so far."""
    budget = Budget(minutes, len(parts))
    for name, measure in parts.items():
        ends = budget.part(report, name)
        if ends is None:
            continue
        try:
            with attempt(report, name):
                measure(ends)
        except KeyboardInterrupt:
            report.more["interrupted"] = f"interrupted while measuring {name}; finished measurements count"
            return


def run_turns(report: Report, groups: Iterable[Sequence[int]], turns: Mapping[str, Turn]) -> None:
    """Run all turns with one group of seeds, then with the next. A turn that fails is reported and dropped, and the
    others continue. If the minutes are over, the results so far are kept."""
    going = dict(turns)
    for group in groups:
        for name, turn in list(going.items()):
            try:
                turn(group)
            except FAILURES as error:
                report.fail(name, error)
                del going[name]
            except OverError:
                report.leave_out(f"{name}, seeds from {group[0]} on, and everything after it", CUT)
                return


@contextmanager
def interruptible(report: Report) -> Iterator[None]:
    """Ctrl-C ends playing, with the results so far."""
    try:
        yield
    except KeyboardInterrupt:
        report.more["interrupted"] = "interrupted: each row has its number of episodes"


def until(end_s: float, say: Say) -> Say:
    """A version of `say`, for code that calls it often: it raises OverError after end_s of the monotonic clock."""

    def checked(text: str) -> None:
        if time.monotonic() >= end_s:
            raise OverError
        say(text)

    return checked
