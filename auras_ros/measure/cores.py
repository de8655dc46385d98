"""The cores of each side of a ratio: the same number on both sides, and every row records how many.

A pipeline with fetch_offset -1 has two threads, and `par` one for each worker. Without a limit they use more cores than
`seq`, and the ratio would be one of cores. So both sides run on the same k cores: first on one, where only the
schedules differ, then on all, which each side may use in its best way. With a GPU the host's threads only launch, and
may use all cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def available() -> int:
    """Number of cores that this process may use."""
    return len(_mine())


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Run the calling thread, and all threads and processes started meanwhile, on the first `count` of its cores.
    Raises ValueError for more than there are. On a system without affinity only the full number is possible."""
    mine = _mine()
    if not 1 <= count <= len(mine):
        raise ValueError(f"cores: from 1 to the {len(mine)} of this process, got {count}")
    if count == len(mine):
        yield
        return
    os.sched_setaffinity(0, mine[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _mine() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


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
