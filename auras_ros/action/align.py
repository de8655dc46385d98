"""Which action of a chunk is due: alignment by executed index (rule 8 of docs/pipeline.md).

A chunk's origin defines its action 0. Used d steps later it starts at index d, and d is read from the
actuator's own record of executed ticks, never from an estimated latency. A late tick counts for the periods
it missed: the previous command was active meanwhile, so the time of those actions has passed and they are
never made up. This module never blends, limits or publishes, and reads no clock: times are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .chunk import Chunk, Provenance
from .contract import ChannelKind, Contract, FloatArray, Interpolation
from .limits import Limits
from .verdict import Accepted, ChunkRefusal, Rejected

_EARLY_PART = 10  # a tick that is a tenth of a period early still counts as the next one


@dataclass(frozen=True, eq=False, slots=True)
class Due:
    """What is wanted at a tick: `wanted` [channels], at policy step `index` of the chunk that `provenance` names,
    `age_ns` after the oldest observation in it. `source`: chunk, blend or ensemble."""

    wanted: FloatArray
    source: str
    index: int
    age_ns: int
    provenance: Provenance


@dataclass(frozen=True, eq=False)
class TimelinePosition:
    """An instant on the record of executed ticks: the number of the first tick at or after it, and the increments
    [channels] that had been executed before that tick."""

    count: int
    executed: FloatArray


class Timeline:
    """A ring buffer of executed ticks: the time of each, its number on the actuator's grid, what was executed before.

    `span_ns` is how far back an origin may lie. Numbers start at 0 and rise by one a tick, and by more over
    missed periods.
    """

    def __init__(self, tick_ns: int, span_ns: int, channels: int) -> None:
        self.tick_ns = tick_ns
        size = span_ns // tick_ns + 2
        self._at_ns: npt.NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self._counts: npt.NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self._before: FloatArray = np.zeros((size, channels))
        self._used = 0
        self._next = 0
        self._grid_ns = 0
        self.count = -1
        self.last_ns: int | None = None
        self.executed: FloatArray = np.zeros(channels)

    def number(self, now_ns: int) -> int:
        """The number of a tick at `now_ns`."""
        if self.last_ns is None:
            return 0
        early_ns = self.tick_ns // _EARLY_PART
        on_grid = (now_ns - self._grid_ns + early_ns) // self.tick_ns
        return max(self.count + 1, on_grid)

    def advance(self, now_ns: int) -> int:
        """Record a tick; returns the number of periods that were missed before it."""
        count = self.number(now_ns)
        if self.last_ns is None:
            self._grid_ns = now_ns
        missed = count - self.count - 1
        self.count, self.last_ns = count, now_ns
        row = self._next
        self._at_ns[row], self._counts[row], self._before[row] = now_ns, count, self.executed
        self._next = (row + 1) % len(self._at_ns)
        self._used = min(self._used + 1, len(self._at_ns))
        return missed

    def locate(self, origin_ns: int, now_ns: int) -> TimelinePosition | None:
        """Where an origin lies on the record; None if it is older than the record.

        A tick at the same instant as the origin comes after it: the observation is taken, then acted on.
        Before the first tick only an origin within one period of now is known to have nothing executed since.
        """
        if self.last_ns is None:
            return TimelinePosition(0, self.executed.copy()) if now_ns - origin_ns <= self.tick_ns else None
        rows = (np.arange(self._used) + self._next - self._used) % len(self._at_ns)
        times = self._at_ns[rows]
        after = int(np.searchsorted(times, origin_ns, side="left"))
        if after == 0:
            first = rows[0]
            known = int(times[0]) == origin_ns
            return TimelinePosition(int(self._counts[first]), self._before[first].copy()) if known else None
        # An origin inside a gap of missed periods is counted in periods from the tick before the gap.
        periods = -(-(origin_ns - int(times[after - 1])) // self.tick_ns)
        count = int(self._counts[rows[after - 1]]) + periods
        if after == len(rows):
            return TimelinePosition(count, self.executed.copy())
        return TimelinePosition(min(count, int(self._counts[rows[after]])), self._before[rows[after]].copy())

    def clear(self) -> None:
        """Forget all ticks: the clock has started again."""
        self._used, self._next, self.count, self.last_ns = 0, 0, -1, None


class AlignedChunk:
    """A chunk on the timeline, its actions converted to commands.

    `values` [horizon, channels]: set points for absolute, delta_origin (reference added) and gripper, rates
    for velocity, and for delta_previous the path: the sum of all increments up to a step, on top of what had
    been executed at the origin. So an increment is neither lost nor doubled when chunks change or ticks are
    missed. `origin_count`: the number of the origin's tick; nothing before tick `first_count` is ever due.
    """

    def __init__(self, chunk: Chunk, contract: Contract, tick_ns: int, origin: TimelinePosition) -> None:
        self.chunk = chunk
        self.values: FloatArray = chunk.actions.copy()
        relative = contract.is_kind(ChannelKind.DELTA_ORIGIN)
        if chunk.reference is not None and relative.any():
            with np.errstate(over="ignore", invalid="ignore"):  # screening refuses what is not finite
                self.values[:, relative] += chunk.reference[relative]
        self._linear = np.array([c.interpolation is Interpolation.LINEAR for c in contract.channels])
        self._blends = bool(self._linear.any())
        self._dt_ns, self._tick_ns = contract.dt_ns, tick_ns
        self.origin_count = origin.count
        self.first_count = origin.count
        self._base = origin.executed

    def executed_ns(self, count: int) -> int:
        """Executed time since the origin at the tick with this number."""
        # Never before the tick from which the values were screened, in whatever order two threads read their times.
        return max(0, max(count, self.first_count) - self.origin_count) * self._tick_ns

    def index(self, count: int) -> int:
        """d = ceil(executed time / dt); it may lie beyond the horizon."""
        return -(-self.executed_ns(count) // self._dt_ns)

    def screen(self, limits: Limits, count: int) -> Accepted | Rejected:
        """Check what would still be executed from tick `count` on, and convert increments to a path. Call once.

        Refused: a chunk whose whole horizon is in the past; a value that is not finite or beyond its limit.
        Increments are checked from step 0, since the path sums all of them; linear channels from the step before d.
        """
        self.first_count = count
        index = self.index(count)
        if index >= len(self.values):
            return Rejected(ChunkRefusal.PAST, f"starts at step {index} of a horizon of {len(self.values)}")
        first = np.where(self._linear, self.executed_ns(count) // self._dt_ns, index)
        first[limits.increments] = 0
        used = np.arange(len(self.values))[:, None] >= first
        clipped = limits.screen(self.values, used)
        if isinstance(clipped, Rejected):
            return clipped
        if limits.increments.any():
            path = np.cumsum(self.values[:, limits.increments], axis=0)
            self.values[:, limits.increments] = path + self._base[limits.increments]
        return Accepted(index, clipped)

    def start(self, count: int) -> None:
        """Note a tick that uses the chunk: its origin is never later than that."""
        self.origin_count = min(self.origin_count, count)

    def at(self, count: int) -> FloatArray | None:
        """The values [channels] due at the tick with this number, a view or a new array; None after the horizon."""
        executed_ns = self.executed_ns(count)
        index = -(-executed_ns // self._dt_ns)
        if index >= len(self.values):
            return None
        row: FloatArray = self.values[index]
        part = executed_ns % self._dt_ns
        if self._blends and part:
            before: FloatArray = self.values[index - 1]
            between = before + (part / self._dt_ns) * (row - before)
            row = np.where(self._linear, between, row)
        return row
