"""The recent past of one stream, thinned, for policies that use more than one instant.

A policy was trained on observations dt apart. The camera has its own rate, and a frame may take many periods. So
entries are kept at the stream's rate, and picked by stamp when an observation is latched. This module never
interpolates between entries.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import Generic, TypeVar

from .slot import Stamped

T = TypeVar("T")

_SAMPLES_PER_DT = 8  # bounds memory at any stream rate; dt/8 apart is close enough to dt/2


class History(Generic[T]):
    """Entries of the last `length` policy steps, at most 8 a step. Not thread-safe.

    Spacing is by stamp, not by receipt: in a slow simulation a policy step is a step of the simulation's clock.
    """

    def __init__(self, length: int, dt_ns: int) -> None:
        self._dt_ns = dt_ns
        self._keep_ns = length * dt_ns
        self._least_ns = dt_ns // _SAMPLES_PER_DT
        self._entries: deque[Stamped[T]] = deque()

    def push(self, entry: Stamped[T]) -> None:
        """Keep an entry; stamps rise. An entry closer than dt/8 to the one before is not kept."""
        if self._entries and entry.stamp_ns - self._entries[-1].stamp_ns < self._least_ns:
            return
        self._entries.append(entry)
        while entry.stamp_ns - self._entries[0].stamp_ns > self._keep_ns:
            self._entries.popleft()

    def pick(self, target_stamp_ns: int, newest: Stamped[T]) -> Stamped[T]:
        """The entry for an instant: the nearest within half a dt, else the nearest older one, else the oldest: the
        first observation is repeated, as in training. `newest` counts, kept or not."""
        near = self._nearest(target_stamp_ns, newest)
        if near is not None:
            return near
        known = [*self._entries, newest]
        older = [entry for entry in known if entry.stamp_ns <= target_stamp_ns]
        stamp = attrgetter("stamp_ns")
        return max(older, key=stamp) if older else min(known, key=stamp)

    def beside(self, stamp_ns: int, newest: Stamped[T]) -> Stamped[T]:
        """The entry that belongs to another stream's stamp: the nearest within half a dt, else the newest."""
        return self._nearest(stamp_ns, newest) or newest

    def _nearest(self, stamp_ns: int, newest: Stamped[T]) -> Stamped[T] | None:
        nearest = min([*self._entries, newest], key=lambda entry: abs(entry.stamp_ns - stamp_ns))
        return nearest if 2 * abs(nearest.stamp_ns - stamp_ns) <= self._dt_ns else None

    def clear(self) -> None:
        """Forget everything: the next entry is the first again."""
        self._entries.clear()
