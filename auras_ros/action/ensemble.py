"""Temporal ensembling: the weighted mean of all chunks' actions for a tick (ACT, Zhao et al. 2023, 3.2).

Every chunk whose horizon covers the tick is a member. The i-th oldest of them, counting from 0, has the weight
exp(-decay·i): with a small decay a new chunk counts nearly as much as the others, with a large one the oldest
dominates. What is averaged depends on the kind: set points (absolute, delta_origin) and velocities are averaged; a
gripper switches with the newest chunk; for increments the paths are averaged, that is, what each chunk would have had
executed in all by now, so that no increment is lost or doubled.

All members are of one session and one epoch: a chunk of another one empties the ensemble. At most MAX_MEMBERS
chunks are kept, each as far as the age limit reaches. This module never limits, publishes or reads a clock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .align import AlignedChunk, Due
from .contract import BoolArray, ChannelKind, Contract, FloatArray, Interpolation

IntArray = npt.NDArray[np.int64]

DEFAULT_ENSEMBLE_DECAY = 0.01
MAX_MEMBERS = 128


class Ensemble:
    """The chunks that may still count, oldest first. `decay` is zero or more.

    Lists and arrays are replaced, never written to, so that a shallow copy does not change.
    """

    def __init__(self, contract: Contract, tick_ns: int, max_age_ns: int, decay: float) -> None:
        self._dt_ns, self._tick_ns, self._max_age_ns = contract.dt_ns, tick_ns, max_age_ns
        self._weights: FloatArray = np.exp(-decay * np.arange(MAX_MEMBERS))
        self._switching = contract.is_kind(ChannelKind.GRIPPER)
        self._linear = np.array([c.interpolation is Interpolation.LINEAR for c in contract.channels])
        self._any_linear, self._switches = bool(self._linear.any()), bool(self._switching.any())
        self._rows = max_age_ns // contract.dt_ns + 4  # steps beyond are too old to be executed
        self.clear()

    def clear(self) -> None:
        """Forget all chunks."""
        self._keep([])

    def add(self, placed: AlignedChunk, count: int) -> None:
        """Add the newest chunk, from tick `count` on; drop chunks that are over or of another epoch."""
        ours = _epoch(placed)
        kept = [m for m in self._members if _epoch(m) == ours and m.index(count) < len(m.values)]
        self._keep([*kept[1 - MAX_MEMBERS :], placed])

    def _keep(self, members: list[AlignedChunk]) -> None:
        self._members = members
        self._lengths = np.array([min(len(m.values), self._rows) for m in members], dtype=np.int64)
        self._values: FloatArray = np.zeros((len(members), self._lengths.max(initial=0), len(self._linear)))
        for row, (member, length) in enumerate(zip(members, self._lengths, strict=True)):
            self._values[row, :length] = member.values[:length]
        self._origins_ns = np.array([m.chunk.provenance.origin_mono_ns for m in members], dtype=np.int64)
        self._counts = np.array([m.origin_count for m in members], dtype=np.int64)
        self._first = np.array([m.first_count for m in members], dtype=np.int64)

    def start(self, count: int) -> None:
        """Note that the tick with this number is executed: no member's origin is later."""
        if self._members:
            self._members[-1].start(count)
            self._counts = np.minimum(self._counts, count)

    def at(self, count: int, now_ns: int) -> Due | None:
        """The mean over the members that cover the tick with this number and whose origin is not older than
        the age limit at `now_ns`; None if there are none. Index and provenance are those of the newest of them."""
        if not self._members:
            return None
        live, index, part_ns = self._cover(np.array([count]), np.array([now_ns]))
        has = np.flatnonzero(live[0])
        if len(has) == 0:
            return None
        newest, oldest = has[-1], has[0]
        return Due(
            self._means(live, index, part_ns)[0],
            "ensemble" if len(has) > 1 else "chunk",
            int(index[0, newest]),
            now_ns - int(self._origins_ns[oldest]),
            self._members[newest].chunk.provenance,
        )

    def ahead(self, counts: IntArray, times_ns: IntArray) -> FloatArray:
        """The means [steps, channels] at ticks `counts` [steps] and times `times_ns` [steps], up to the first tick
        that no member covers."""
        if not self._members:
            return np.zeros((0, len(self._linear)))
        live, index, part_ns = self._cover(counts, times_ns)
        uncovered = np.flatnonzero(~live.any(axis=1))
        steps = int(uncovered[0]) if len(uncovered) else len(live)
        return self._means(live[:steps], index[:steps], part_ns[:steps])

    def _cover(self, counts: IntArray, times_ns: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
        """For [steps, members]: whether the member counts, its policy step, and the time since the step before it (0:
        exactly at the step)."""
        executed_ns = np.maximum(0, np.maximum(counts[:, None], self._first) - self._counts) * self._tick_ns
        index = -(-executed_ns // self._dt_ns)
        live = (index < self._lengths) & (times_ns[:, None] - self._origins_ns <= self._max_age_ns)
        return live, np.where(live, index, 0), executed_ns % self._dt_ns

    def _means(self, live: BoolArray, index: IntArray, part_ns: IntArray) -> FloatArray:
        """The weighted means [steps, channels]; each step has at least one member."""
        which = np.arange(len(self._members))
        says = live[:, :, None]  # members that do not cover the step are ignored, even if their values are NaN
        rows: FloatArray = np.where(says, self._values[which, index], 0.0)
        if self._any_linear:
            between = live & (part_ns > 0)
            before = np.where(says, self._values[which, index - between], 0.0)[..., self._linear]
            part = np.where(between, part_ns / self._dt_ns, 1.0)[:, :, None]
            rows[..., self._linear] = before + part * (rows[..., self._linear] - before)
        weights = np.where(live, self._weights[np.maximum(np.cumsum(live, axis=1) - 1, 0)], 0.0)
        means: FloatArray = np.einsum("sm,smc->sc", weights, rows) / weights.sum(axis=1, keepdims=True)
        if self._switches:
            newest = live.shape[1] - 1 - np.argmax(live[:, ::-1], axis=1)
            means[:, self._switching] = rows[np.arange(len(rows)), newest][:, self._switching]
        return means


def _epoch(placed: AlignedChunk) -> tuple[str, int]:
    return placed.chunk.provenance.session, placed.chunk.provenance.epoch
