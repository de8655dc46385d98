"""The cores that each side of a ratio gets: the same number on both sides, and every row says how many.

A pipeline with fetch_offset -1 has two threads and `par` as many as it has workers. Left to themselves they take cores
that `seq` never had, and the ratio is one of cores. So whatever is compared runs on the same k cores: first on one,
where only the schedules differ, then on all, where each side may use them as it can best. Beside a GPU the host's
threads only launch, and all cores serve them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from auras_ros.bench.options import Options, listed
from auras_ros.evaluate.cores import available, on_cores

__all__ = ["add_cores", "available", "check_cores", "on_cores", "suffix", "threads_tried", "unnamed", "words"]

ALL = "all"


def add_cores(options: Options) -> None:
    options.add_argument(
        "--cores", type=listed(str), help=f"that each side gets, one comparison each (1,{ALL}; beside a GPU {ALL})"
    )


def check_cores(parser: argparse.ArgumentParser, given: Sequence[str] | None, kind: str) -> list[int]:
    """The numbers of --cores, the fair one first. Exits with status 2 if one is invalid."""
    most = available()
    counts = []
    for word in given or (["1", ALL] if kind == "cpu" else [ALL]):
        count = most if word == ALL else int(word) if word.isdecimal() else 0
        if not 1 <= count <= most:
            parser.error(f"--cores: from 1 to the {most} of this process, or {ALL}, got '{word}'")
        if kind != "cpu" and count != most:
            parser.error(f"--cores: beside a GPU the host's threads only launch; there is {ALL} alone, got '{word}'")
        counts.append(count)
    return list(dict.fromkeys(counts))


def threads_tried(cores: int, kind: str) -> tuple[int, ...]:
    """Intra-op threads that a plan is tried with: 1, 2, 4 ... and all. They mean nothing where a GPU does the work."""
    if kind != "cpu":
        return (1,)
    return tuple(sorted({cores, *(2**power for power in range(cores.bit_length()) if 2**power <= cores)}))


def words(cores: int) -> str:
    return f"{cores} core{'s' * (cores > 1)}"


def suffix(cores: int, counts: Sequence[int]) -> str:
    """Of a summary's keys: none for the first count, which is the headline."""
    return "" if cores == counts[0] else f"_cores_{cores}"


def unnamed(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which rows do not say their cores; empty where all do."""
    missing = [str(number) for number, row in enumerate(rows) if not isinstance(row.get("cores"), int)]
    return f"rows without cores: {', '.join(missing)}" if missing else ""
