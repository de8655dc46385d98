"""What ran where and when, for timeline and trace: spans are added while lanes run, and read at the end.

It never draws, formats or writes files.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple


class Span(NamedTuple):
    """One run of one stage, ns on the host's monotonic clock (or on the virtual clock of a null device)."""

    lane: str
    stage: str
    start_ns: int
    end_ns: int


class Spans:
    """The latest `capacity` spans of all lanes; those that newer ones have replaced are counted in `dropped`."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        # Plain tuples: the garbage collector does not look into them again, as it would into named ones.
        self._kept: deque[tuple[str, str, int, int]] = deque(maxlen=capacity)
        self._added = 0
        self._lock = threading.Lock()

    @property
    def dropped(self) -> int:
        """Number of spans that newer ones have replaced since the start or `clear`."""
        return self._added - len(self._kept)

    def add(self, lane: str, stage: str, start_ns: int, end_ns: int) -> None:
        """Any thread may add. Raises ValueError, naming lane and stage, if the span ends before it starts."""
        if end_ns < start_ns:
            raise ValueError(f"stage {stage!r} on lane {lane!r} ends at {end_ns}, before its start at {start_ns} ns")
        with self._lock:
            self._kept.append((lane, stage, start_ns, end_ns))
            self._added += 1

    def rows(self) -> list[Span]:
        """All spans that are kept, by start; those that start together in the order in which they were added."""
        with self._lock:
            return sorted((Span(*each) for each in self._kept), key=lambda span: span.start_ns)

    def clear(self) -> None:
        """Forget everything, as after a warm-up (rule 10 of docs/pipeline.md)."""
        with self._lock:
            self._kept.clear()
            self._added = 0
