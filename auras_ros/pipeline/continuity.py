"""What a guided plan's chunks go on from: the active chunk, seen from the observation that the next one answers.

A chunk says what is executed from its own origin on. Its successor has a later origin, where the same instant has a
smaller index: the old actions are shifted by the time between the two, as the actuator places them (`action.align`).
How long a chunk takes to come is measured, and says only where the freezing ends: when a new chunk is there, the
actuator goes by what it has executed and not by this. No tensor of a device is known here (see `guided`).
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from auras_ros.action import DEFAULT_CLIP_TOLERANCE, ChannelKind, Contract, Interpolation
from auras_ros.pipeline.plan import PlanError
from auras_ros.pipeline.request import Emission, ObservationOrigin

REMEMBERED_FRAMES = 10  # the longest of them is what the next one is taken to last (Black et al. 2025, algorithm 1),
MOST_MEDIANS = 2  # but no longer than so many medians: one slow frame must not have old decisions executed for ten

Array = NDArray[np.float64]


class Aim(NamedTuple):
    """target [E, horizon, channels] in physical units, weight [E, horizon, channels]: 0 free, 1 frozen."""

    target: Array
    weight: Array


class Continuity:
    """One worker's thread calls `began`, `aim`, `ended` in turn; `cut` may come from any.

    guide: of the plan; "none" goes on from nothing, ever, and needs no contract. Raises PlanError where one is needed.
    """

    def __init__(self, guide: str = "none", contract: Contract | None = None) -> None:
        self.guide = guide
        self._epoch: int | None = None
        self._forget()
        if guide == "none":
            return
        if contract is None:
            raise PlanError(f"plan: guide: {guide!r} needs the channels' contract: what an action's time and kind are")
        self._dt_ns = contract.dt_ns
        self._relative = contract.is_kind(ChannelKind.DELTA_ORIGIN)
        bounds = np.array([[each.lower, each.upper] for each in contract.channels])
        slack = DEFAULT_CLIP_TOLERANCE * (bounds[:, 1] - bounds[:, 0])
        self._lower, self._upper = bounds[:, 0] - slack, bounds[:, 1] + slack
        self._linear = np.array([each.interpolation is Interpolation.LINEAR for each in contract.channels])

    def _forget(self) -> None:
        self._newest: Emission | None = None
        self._durations_ns: deque[int] = deque(maxlen=REMEMBERED_FRAMES)
        self._began_ns: int | None = None

    def cut(self) -> None:
        """The active chunk is not being executed: do not continue the next chunk from it."""
        self._newest = None

    def began(self, epoch: int, now_ns: int) -> None:
        """A frame, or a request, begins. Of another epoch nothing counts, warm-up's times least of all."""
        if self.guide == "none":
            return
        if epoch != self._epoch:
            self._forget()
            self._epoch = epoch
        self._began_ns = now_ns

    def ended(self, emission: Emission | None, now_ns: int, generated: bool = True) -> None:
        """generated: whether anything was. How long a frame takes that only perceived, or found nothing to do, says
        nothing about when a chunk will be there."""
        if self.guide == "none":
            return
        if generated and self._began_ns is not None:
            self._durations_ns.append(now_ns - self._began_ns)
        if emission is not None and emission.epoch == self._epoch:
            self._newest = emission if self._executable(emission) else None

    def _executable(self, emission: Emission) -> bool:
        """Whether an actuator would take it: finite, and where that can be told here, within the limits."""
        actions: Array = emission.actions.numpy()
        within = ((actions >= self._lower) & (actions <= self._upper)) | self._relative
        return bool(np.isfinite(actions).all() and within.all())

    def aim(self, origin: ObservationOrigin, now_ns: int) -> Aim | None:
        """For a chunk whose index 0 is at `origin`, generated from now on; None where there is nothing to go on from:
        no chunk of this epoch, one that is used up or that no actuator takes, or an observation that is older than the
        chunk's (a clock was set)."""
        newest = self._newest
        if newest is None or not self._durations_ns or origin.mono_ns < newest.origin.mono_ns:
            return None
        values, overlap = self._shifted(newest, origin)
        if overlap == 0:
            return None
        arrival_ns = now_ns + min(max(self._durations_ns), round(MOST_MEDIANS * median(self._durations_ns)))
        # An actuator that ticks more often than dt is in the middle of that action when the chunk comes.
        frozen = max(0, -(-(arrival_ns - origin.mono_ns) // self._dt_ns)) + 1
        weight = np.broadcast_to(weights(frozen, overlap, values.shape[1])[None, :, None], values.shape).copy()
        if self._relative.any():
            self._refer(values, weight, newest.origin, origin)
        return Aim(values, weight)

    def _shifted(self, newest: Emission, origin: ObservationOrigin) -> tuple[Array, int]:
        """(values [E, horizon, channels] from the new origin on, zero where there are none; how many there are)."""
        actions: Array = newest.actions.numpy()
        horizon = actions.shape[1]
        executed_ns = origin.mono_ns - newest.origin.mono_ns + np.arange(horizon, dtype=np.int64) * self._dt_ns
        index, part_ns = -(-executed_ns // self._dt_ns), executed_ns % self._dt_ns
        overlap = int(np.count_nonzero(index < horizon))
        values = np.zeros_like(actions)
        index = index[:overlap]
        values[:, :overlap] = actions[:, index]
        if self._linear.any():
            between = (part_ns[:overlap] > 0) & (index > 0)
            before = actions[:, np.maximum(index - 1, 0)]
            part = np.where(between, part_ns[:overlap] / self._dt_ns, 1.0)[None, :, None]
            mixed = before + part * (values[:, :overlap] - before)
            values[:, :overlap, self._linear] = mixed[..., self._linear]
        return values, overlap

    def _refer(self, values: Array, weight: Array, before: ObservationOrigin, now: ObservationOrigin) -> None:
        """Set points relative to the state at the origin: the state is another one now. Without it they stay free."""
        if before.reference is None or now.reference is None:
            weight[..., self._relative] = 0.0
            return
        moved = np.where(self._relative, before.reference - now.reference, 0.0)
        known = np.isfinite(moved)
        values += np.where(known, moved, 0.0)[:, None]
        weight *= known[:, None]

    def keep(self, rows: Tensor) -> None:
        """Go on with these environments alone (lockstep)."""
        newest = self._newest
        if newest is not None:
            self._newest = newest.keep(rows)


def weights(frozen: int, overlap: int, horizon: int) -> Array:
    """How much each action of a new chunk is held to the old one, [horizon] (Black et al. 2025, eq. 5): wholly while it
    is executed anyway, then less and less, not at all where the old one says nothing. What is padding never guides."""
    frozen = min(frozen, overlap)
    steps = np.arange(horizon)
    left = (overlap - steps) / (overlap - frozen + 1)
    falling = left * np.expm1(np.clip(left, 0.0, 1.0)) / math.expm1(1.0)
    return np.where(steps < frozen, 1.0, np.where(steps < overlap, falling, 0.0))
