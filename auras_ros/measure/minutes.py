"""What a bench keeps: its minutes, and what it has measured where a part of it fails.

A part that fails is named in the report with its reason, and so is one that no time was left for; the others are
measured and written. The minutes are kept with fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from auras_ros.pipeline.plan import PlanError
from auras_ros.report.result import Report

# DeviceError, a GPU without memory: RuntimeErrors. ConfigError: a ValueError; options have been checked before.
FAILURES = (RuntimeError, PlanError, MemoryError, ValueError, OSError)
OVER = "not begun: the bench's minutes were over (--minutes)"
CUT = "not finished: the bench's minutes were over (--minutes)"

MeasureStep = Callable[["Ends"], None]
Turn = Callable[[Sequence[int]], None]


class OverError(Exception):
    """The bench's minutes are over, in the middle of a part (CUT) unless it says otherwise. No failure."""


class Ends(NamedTuple):
    """Seconds of the monotonic clock. No further round begins after soft_s; after hard_s not even the first goes on."""

    soft_s: float
    hard_s: float


class Budget:
    """The minutes of a whole bench, shared by its parts: each gets its share of what the ones before have left."""

    def __init__(self, minutes: float, parts: int) -> None:
        self._end_s, self._left = time.monotonic() + 60 * minutes, parts

    def part(self, report: Report, name: str) -> Ends | None:
        """Of the next part; None where nothing is left for it, which the report then says."""
        now_s = time.monotonic()
        parts, self._left = max(1, self._left), self._left - 1
        if now_s >= self._end_s:
            leave_out(report, name, OVER)
            return None
        return Ends(now_s + (self._end_s - now_s) / parts, self._end_s)


def leave_out(report: Report, name: str, why: str) -> None:
    report.more.setdefault("left_out", []).append(f"{name}: {why}")


def fail(report: Report, name: str, why: object) -> None:
    """The bench ends with status 1, after everything else."""
    report.more.setdefault("failed", []).append(f"{name}: {(str(why).splitlines() or [repr(why)])[0]}")


def disturb(report: Report, name: str, notes: Iterable[str]) -> None:
    """Something else was at work while this was measured, and how that shows: each note once."""
    for text in dict.fromkeys(notes):
        report.more.setdefault("disturbed", []).append(f"{name}: {text}")


@contextmanager
def attempt(report: Report, name: str) -> Iterator[None]:
    """A part that may fail without the others: its first line of reason goes to the report."""
    try:
        yield
    except OverError as over:
        leave_out(report, name, str(over) or CUT)
    except FAILURES as error:
        fail(report, name, error)


def run_parts(report: Report, minutes: float, parts: Mapping[str, MeasureStep]) -> None:
    """Each in turn with its share of the minutes. Ctrl-C ends all of them with what there is."""
    budget = Budget(minutes, len(parts))
    for name, measure in parts.items():
        ends = budget.part(report, name)
        if ends is None:
            continue
        try:
            with attempt(report, name):
                measure(ends)
        except KeyboardInterrupt:
            report.more["interrupted"] = f"interrupted while {name} was measured; what was finished counts"
            return


def run_turns(report: Report, groups: Iterable[Sequence[int]], turns: Mapping[str, Turn]) -> None:
    """All turns with a group of seeds, then with the next. One that fails is named and out, and the others go on; the
    end of the minutes leaves what there is."""
    going = dict(turns)
    for group in groups:
        for name, turn in list(going.items()):
            try:
                turn(group)
            except FAILURES as error:
                fail(report, name, error)
                del going[name]
            except OverError:
                leave_out(report, f"{name}, seeds from {group[0]} on, and what comes after it", CUT)
                return


@contextmanager
def interruptible(report: Report) -> Iterator[None]:
    """Ctrl-C ends what is played with what there is."""
    try:
        yield
    except KeyboardInterrupt:
        report.more["interrupted"] = "interrupted: each row says how many episodes it stands on"


def until(end_s: float, say: Callable[[str], None]) -> Callable[[str], None]:
    """`say` for whoever says often what they are at: raises OverError from end_s of the monotonic clock on."""

    def checked(text: str) -> None:
        if time.monotonic() >= end_s:
            raise OverError
        say(text)

    return checked
