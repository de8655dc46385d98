"""What ran where and when, for timeline and trace: a ring buffer that is filled while lanes run and read at the end.

Memory is allocated once; writing a span allocates none. It never draws, formats or writes files.
"""

from __future__ import annotations

import threading
from array import array
from typing import NamedTuple

FIELDS = 4  # lane, stage, start, end


class Span(NamedTuple):
    """One run of one stage, ns on the host's monotonic clock (or on the virtual clock of a null device)."""

    lane: str
    stage: str
    start_ns: int
    end_ns: int


class Spans:
    """The latest `capacity` spans of all lanes; overwritten ones are counted in `dropped`."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._ring = array("q", bytes(8 * FIELDS * capacity))
        self._written = 0
        self._number: dict[str, int] = {}  # name -> its number in the ring
        self._names: list[str] = []
        self._lock = threading.Lock()

    @property
    def dropped(self) -> int:
        """Number of spans that newer ones have overwritten since the start or `clear`."""
        return max(0, self._written - self.capacity)

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    def add(self, lane: str, stage: str, start_ns: int, end_ns: int) -> None:
        """Any thread may write. Raises ValueError, naming lane and stage, if the span ends before it starts."""
        if end_ns < start_ns:
            raise ValueError(f"stage {stage!r} on lane {lane!r} ends at {end_ns}, before its start at {start_ns} ns")
        with self._lock:
            at = self._written % self.capacity * FIELDS
            ring = self._ring
            ring[at], ring[at + 1] = self._intern(lane), self._intern(stage)
            ring[at + 2], ring[at + 3] = start_ns, end_ns
            self._written += 1

    def rows(self) -> list[Span]:
        """All spans in the ring, by start; those that start together in the order in which they were written."""
        with self._lock:
            first = self._written - len(self)
            kept = [self._row(index % self.capacity) for index in range(first, self._written)]
        return sorted(kept, key=lambda span: span.start_ns)

    def clear(self) -> None:
        """Forget everything, as after a warm-up (rule 10 of docs/pipeline.md)."""
        with self._lock:
            self._written = 0

    def _intern(self, name: str) -> int:
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self._names)
            self._names.append(name)
        return number

    def _row(self, index: int) -> Span:
        lane, stage, start_ns, end_ns = self._ring[index * FIELDS : (index + 1) * FIELDS]
        return Span(self._names[lane], self._names[stage], start_ns, end_ns)
