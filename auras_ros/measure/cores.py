"""The cores that each side of a ratio gets: the same number on both sides, and every row says how many.

A pipeline with fetch_offset -1 has two threads and `par` as many as it has workers. Left to themselves they take cores
that `seq` never had, and the ratio is one of cores. So whatever is compared runs on the same k cores: first on one,
where only the schedules differ, then on all, where each side may use them as it can best. Beside a GPU the host's
threads only launch, and all cores serve them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def available() -> int:
    """How many cores this process may use."""
    return len(_mine())


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """The calling thread, and every thread and process that is started meanwhile, on the first `count` of its cores.
    Raises ValueError for more than there are. Where a system knows no affinity, all is the only number there is."""
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
