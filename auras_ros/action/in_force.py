"""The trajectory in force: the active chunk on the timeline and the seam from the one before it.

Commands that the plan wants are not yet guarded by limits. This module never publishes or changes state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .align import Placed, Timeline
from .chunk import Chunk
from .command import Horizon
from .contract import Contract, FloatArray
from .limits import Limits
from .seam import Seam
from .verdict import Accepted, Refusal, Rejected


@dataclass(frozen=True, eq=False, slots=True)
class Due:
    """What a chunk wants at a tick: `wanted` [channels], at policy step `index`, within a seam or not."""

    wanted: FloatArray
    index: int
    blended: bool


class InForce:
    """At most one chunk is active. Increments are wanted as what is left of the path, others as values."""

    def __init__(self, contract: Contract, timeline: Timeline, limits: Limits, blend_ticks: int) -> None:
        self._contract, self._timeline, self._limits = contract, timeline, limits
        self._blend_ticks = blend_ticks
        self._active: Placed | None = None
        self._seam: Seam | None = None

    @property
    def chunk(self) -> Chunk | None:
        """The active chunk."""
        return None if self._active is None else self._active.chunk

    def place(self, chunk: Chunk, now_ns: int, last: FloatArray) -> Accepted | Rejected:
        """Make a chunk the active one from the next tick on, blending from the plan so far, else from `last`
        [channels], the last command. A refusal leaves the plan as it was."""
        origin = self._timeline.locate(chunk.provenance.origin_mono_ns, now_ns)
        if origin is None:
            return Rejected(Refusal.UNKNOWN_ORIGIN, "origin is older than the record of executed ticks")
        placed = Placed(chunk, self._contract, self._timeline.tick_ns, origin)
        start = self._timeline.number(now_ns)
        verdict = placed.screen(self._limits, start)
        if isinstance(verdict, Accepted):
            if self._blend_ticks:
                self._seam = Seam(self._contract, start, self._blend_ticks, self._values, last)
            self._active = placed
        return verdict

    def due(self) -> Due | None:
        """What is due at the timeline's newest tick, None where there is no chunk or its horizon is over."""
        count = self._timeline.count
        if self._active is None:
            return None
        self._active.start(count)
        values = self._values(count)
        if values is None:
            return None
        blended = self._seam is not None and self._seam.active(count)
        wanted = np.where(self._limits.increments, values - self._timeline.executed, values)
        return Due(wanted, self._active.index(count), blended)

    def drop(self) -> None:
        """Have no active chunk, and nothing to blend from."""
        self._active = self._seam = None

    def horizon(self, now_ns: int, last: FloatArray) -> Horizon | None:
        """The active chunk's rest, each row guarded in turn from the last command on; None where empty.

        Seams and tick phases are left out. Increments are per policy step.
        """
        if self._active is None:
            return None
        index = self._active.index(self._timeline.number(now_ns))
        values = self._active.values[index:].copy()
        increments = self._limits.increments
        path = np.vstack([self._timeline.executed, values])
        values[:, increments] = np.diff(path, axis=0)[:, increments]
        step = self._limits.rate * (self._contract.dt_ns * 1e-9)
        for row, wanted in enumerate(values):
            guarded = self._limits.guard(wanted, last, step)
            if guarded is None:
                return None
            values[row], last = guarded, np.where(increments, 0.0, guarded)
        return Horizon(index, values, self._active.chunk.provenance) if len(values) else None

    def _values(self, count: int) -> FloatArray | None:
        values = None if self._active is None else self._active.at(count)
        return values if values is None or self._seam is None else self._seam.blend(count, values)
