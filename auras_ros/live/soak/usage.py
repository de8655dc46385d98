"""What processes use while they run: private memory, descriptors, threads, and whether any of it grows.

Read from /proc once a second, from outside: nothing runs in the processes for it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

WARM_UP_S = 20.0  # of each life, once it drives: first use of each part
SETTLED_S = 480.0  # of each life, before its memory is looked at: each topic's largest message leaves its mark, once
BIN_S = 5.0  # readings are averaged over this, so that neighbours count as one
FEWEST_BINS = 4  # of a life that is to count
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Reading:
    """One look at one process. kib: resident memory that is not shared with others."""

    at_s: float
    kib: float
    descriptors: int
    threads: int


def read(process: int, at_s: float, root: Path = Path("/proc")) -> Reading | None:
    """None where the process has ended."""
    folder = root / str(process)
    try:
        resident, shared = (int(word) for word in (folder / "statm").read_text().split()[1:3])
        if not resident:
            return None  # ended, not reaped yet
        kib = (resident - shared) * _PAGE / 1024
        return Reading(at_s, kib, len(os.listdir(folder / "fd")), len(os.listdir(folder / "task")))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


@dataclass(frozen=True)
class Slope:
    """KiB a minute, its standard error, from how many bins of how many lives."""

    kib_per_min: float
    error: float
    bins: int
    lives: int


def slope(lives: list[list[Reading]], since_s: float = 0.0) -> Slope | None:
    """Common slope of memory over all lives of a process, each with a level of its own; None where too little is known.

    since_s: what was read before is left out. Least squares on the means of bins. The standard error allows for
    neighbours that are alike (autocorrelation at lag one): memory is taken in steps.
    """
    binned = [np.array(points) for life in lives if len(points := _bins(life, since_s)) >= FEWEST_BINS]
    if not binned:
        return None
    centred = [points - points.mean(axis=0) for points in binned]
    t, y = np.concatenate(centred).T
    spread, free = float(t @ t), len(t) - len(centred) - 1
    k = float(t @ y) / spread
    residuals = [points[:, 1] - k * points[:, 0] for points in centred]
    total = sum(float(each @ each) for each in residuals)
    alike = sum(float(each[:-1] @ each[1:]) for each in residuals) / total if total else 0.0
    alike = min(max(alike, 0.0), 0.95)
    error = math.sqrt(total / free / spread * (1 + alike) / (1 - alike))
    return Slope(60.0 * k, 60.0 * error, len(t), len(centred))


def _bins(life: list[Reading], since_s: float) -> list[tuple[float, float]]:
    """(time, KiB) of each bin of one life, once it has settled."""
    begin_s = max(life[0].at_s + SETTLED_S, since_s)
    grouped: dict[int, list[Reading]] = {}
    for reading in life:
        if reading.at_s >= begin_s:
            grouped.setdefault(int((reading.at_s - begin_s) / BIN_S), []).append(reading)
    return [
        (float(np.mean([each.at_s for each in group])), float(np.mean([each.kib for each in group])))
        for group in grouped.values()
    ]


@dataclass
class Usage:
    """The lives of one process: readings by process id, in order. since_s: from when on growth is asked for; each kind
    of fault takes memory when it comes for the first time."""

    lives: dict[int, list[Reading]] = field(default_factory=dict)
    since_s: float = 0.0

    def look(self, process: int, at_s: float) -> None:
        reading = read(process, at_s)
        if reading is not None:
            self.lives.setdefault(process, []).append(reading)

    def slope(self) -> Slope | None:
        return slope(list(self.lives.values()), self.since_s)

    def above(self, control: Usage) -> Usage:
        """The same with memory counted above that of another process at the same time. control: of one life."""
        if not control.lives:
            return self
        (other,) = control.lives.values()
        at_s, kib = [each.at_s for each in other], [each.kib for each in other]
        lives = {
            process: [replace(each, kib=each.kib - float(np.interp(each.at_s, at_s, kib))) for each in life]
            for process, life in self.lives.items()
        }
        return Usage(lives, self.since_s)

    def risen(self, name: str) -> tuple[int, int] | None:
        """The least of `descriptors` or `threads` in the first and in the last third of the longest life, after its
        warm-up: what comes and goes is left out. None where nothing lived so long."""
        longest = max(self.lives.values(), key=len, default=[])
        begin_s = max(longest[0].at_s + WARM_UP_S, self.since_s) if longest else 0.0
        steady = [getattr(each, name) for each in longest if each.at_s >= begin_s]
        third = len(steady) // 3
        return (min(steady[:third]), min(steady[-third:])) if third else None
