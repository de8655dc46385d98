"""The active trajectory: the newest chunk on the timeline, and how it is joined to the ones before it.

The commands that come from here are not yet limited. This module never publishes or changes the safety state.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from .ahead import Ahead
from .align import AlignedChunk, Due, Timeline
from .chunk import Chunk
from .contract import Contract, FloatArray
from .ensemble import Ensemble
from .limits import Limits
from .motion import Motion
from .options import ActionStreamOptions
from .seam import Seam
from .verdict import Accepted, ChunkRefusal, Rejected


class ActiveChunks:
    """At most one chunk is active, or an ensemble of them. Increments are given as what is left of their path,
    other kinds as values."""

    def __init__(self, contract: Contract, timeline: Timeline, limits: Limits, options: ActionStreamOptions) -> None:
        self._contract, self._timeline, self._limits = contract, timeline, limits
        self._max_age_ns, self._blend_ticks = options.max_age_ns, options.blend_ticks
        self._ensemble: Ensemble | None = None
        if options.seam == "ensemble":
            self._ensemble = Ensemble(contract, options.tick_ns, options.max_age_ns, options.ensemble_decay)
        self._active: AlignedChunk | None = None
        self._seam: Seam | None = None

    def place(self, chunk: Chunk, now_ns: int, last: FloatArray) -> Accepted | Rejected:
        """Make a chunk the active one from the next tick on, joined to the active one if there is any, else to
        `last` [channels], the last command. A refusal changes nothing."""
        origin = self._timeline.locate(chunk.provenance.origin_mono_ns, now_ns)
        if origin is None:
            return Rejected(ChunkRefusal.UNKNOWN_ORIGIN, "origin is older than the record of executed ticks")
        placed = AlignedChunk(chunk, self._contract, self._timeline.tick_ns, origin)
        start = self._timeline.number(now_ns)
        verdict = placed.screen(self._limits, start)
        if isinstance(verdict, Accepted):
            if self._ensemble is not None:
                self._ensemble.add(placed, start)
            elif self._blend_ticks:
                self._seam = Seam(self._contract, start, self._blend_ticks, self._values, last)
            self._active = placed
        return verdict

    def due(self, now_ns: int) -> Due | str | None:
        """What is due at the timeline's newest tick; if nothing is due any more, the reason; None without a chunk."""
        active, count = self._active, self._timeline.count
        if active is None:
            return None
        if self._ensemble is None:
            due = self._blended(active, count, now_ns)
        else:
            self._ensemble.start(count)
            due = self._ensemble.at(count, now_ns)
        if due is None:
            return self._over(active, now_ns)
        rest = np.where(self._limits.increments, due.wanted - self._timeline.executed, due.wanted)
        return replace(due, wanted=rest)

    def _blended(self, active: AlignedChunk, count: int, now_ns: int) -> Due | None:
        active.start(count)
        age_ns = now_ns - active.chunk.provenance.origin_mono_ns
        values = self._values(count) if age_ns <= self._max_age_ns else None
        if values is None:
            return None
        blended = self._seam is not None and self._seam.active(count)
        return Due(values, "blend" if blended else "chunk", active.index(count), age_ns, active.chunk.provenance)

    def _over(self, active: AlignedChunk, now_ns: int) -> str:
        if now_ns - active.chunk.provenance.origin_mono_ns > self._max_age_ns:
            return f"the chunk's origin is older than {self._max_age_ns / 1e6:g} ms"
        return "the chunk's horizon is used up"

    def drop(self) -> None:
        """Drop the active chunk; the next one is joined to the last command."""
        self._active = self._seam = None
        if self._ensemble is not None:
            self._ensemble.clear()

    def ahead(self, now_ns: int, motion: Motion) -> Ahead | None:
        """The rest of the newest chunk, from the last command on; None without one. Seams and the phase of ticks are
        ignored. For an ensemble the rows are its means at the newest chunk's steps."""
        active, dt_ns = self._active, self._contract.dt_ns
        if active is None:
            return None
        index = active.index(self._timeline.number(now_ns))
        plan: Callable[[], FloatArray] = active.values[index:].copy
        if self._ensemble is not None:
            tick_ns, now = self._timeline.tick_ns, self._timeline.count
            counts = active.origin_count + np.arange(index, len(active.values)) * dt_ns // tick_ns
            times_ns = now_ns + np.maximum(0, counts - now) * tick_ns
            plan = partial(copy(self._ensemble).ahead, counts, times_ns)
        executed, provenance = self._timeline.executed, active.chunk.provenance
        return Ahead(index, plan, self._limits.increments, executed, provenance, copy(motion), dt_ns)

    def _values(self, count: int) -> FloatArray | None:
        values = None if self._active is None else self._active.at(count)
        return values if values is None or self._seam is None else self._seam.blend(count, values)
