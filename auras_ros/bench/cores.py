"""The cores of each side of a ratio: the same number on both sides, and every row records how many.

A pipeline with fetch_offset -1 has two threads, and `par` one for each worker. Without a limit they use more cores than
`seq`, and the ratio would be one of cores. So both sides run on the same k cores: first on one, where only the
schedules differ, then on all, which each side may use in its best way. With a GPU the host's threads only launch, and
may use all cores.
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
        "--cores", type=listed(str), help=f"cores of each side, one comparison for each (1,{ALL}; with a GPU {ALL})"
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
            parser.error(f"--cores: with a GPU the host's threads only launch; must be {ALL}, got '{word}'")
        counts.append(count)
    return list(dict.fromkeys(counts))


def threads_tried(cores: int, kind: str) -> tuple[int, ...]:
    """Numbers of intra-op threads to try with each plan: 1, 2, 4 ... and all. With a GPU they have no effect."""
    if kind != "cpu":
        return (1,)
    return tuple(sorted({cores, *(2**power for power in range(cores.bit_length()) if 2**power <= cores)}))


def words(cores: int) -> str:
    return f"{cores} core{'s' * (cores > 1)}"


def suffix(cores: int, counts: Sequence[int]) -> str:
    """Suffix of a summary's keys: empty for the first count, which is the headline."""
    return "" if cores == counts[0] else f"_cores_{cores}"


def unnamed(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which rows have no number of cores; empty if all have one."""
    missing = [str(number) for number, row in enumerate(rows) if not isinstance(row.get("cores"), int)]
    return f"rows without cores: {', '.join(missing)}" if missing else ""
