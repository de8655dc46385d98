"""How many of this process's cores a measured program uses: both sides of a ratio of rates must have the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


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
