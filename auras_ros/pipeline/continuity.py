"""What a guided plan's chunks continue: the active chunk, shifted to the observation that the next one answers.

A chunk's actions count from its own origin. The next chunk has a later origin, at which the same instant has a smaller
index: the old actions are shifted by the time between the two, as the actuator aligns them (`action.align`). How long a
chunk takes to come is measured, and is only used for where the frozen part ends: the actuator aligns the new chunk by
what it has executed, not by this estimate. This module has no device tensors (see `guided`).
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from auras_ros.action import DEFAULT_CLIP_TOLERANCE, ChannelKind, Contract, Interpolation
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.request import Emission, ObservationOrigin

REMEMBERED_FRAMES = 10  # the next frame is expected to last as long as the longest of them (Black et al. 2025, alg. 1),
MOST_MEDIANS = 2  # but at most so many medians: one slow frame must not freeze old decisions for ten frames

Array = NDArray[np.float64]


class Aim(NamedTuple):
    """target [E, horizon, channels] in physical units, weight [E, horizon, channels]: 0 free, 1 frozen."""

    target: Array
    weight: Array


class Continuity:
    """Of a plan without guide: no chunk continues another. One worker's thread calls `began`, `aim`, `ended` in turn;
    `cut` may be called from any thread."""

    def cut(self) -> None:
        """The active chunk is not being executed: do not continue the next chunk from it."""

    def began(self, epoch: int, now_ns: int) -> None:
        """Note that a frame or a request begins. In a new epoch everything before is forgotten, warm-up times too."""

    def ended(self, emission: Emission | None, now_ns: int, generated: bool = True) -> None:
        """Note that it ended. generated: whether generation ran. The duration of a frame that only perceived, or had
        nothing to do, does not help to predict when a chunk will be there."""

    def aim(self, origin: ObservationOrigin, now_ns: int) -> Aim | None:
        """The guidance target of a chunk whose index 0 is at `origin`, generated from now on. None if there is nothing
        to continue: no chunk of this epoch, one that is used up or that no actuator would accept, or an observation
        that is older than the chunk's (a clock was set)."""
        return None


def make_continuity(plan: Plan, contract: Contract | None) -> Continuity:
    """Raises PlanError if a guided plan comes without a contract."""
    if plan.guide == "none":
        return Continuity()
    if contract is None:
        raise PlanError(f"plan: guide: {plan.guide!r} needs the channel contract: the step and each channel's kind")
    return GuidedContinuity(contract)


class GuidedContinuity(Continuity):
    """Of a guided plan."""

    def __init__(self, contract: Contract) -> None:
        self._epoch: int | None = None
        self._forget()
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
        self._newest = None

    def began(self, epoch: int, now_ns: int) -> None:
        if epoch != self._epoch:
            self._forget()
            self._epoch = epoch
        self._began_ns = now_ns

    def ended(self, emission: Emission | None, now_ns: int, generated: bool = True) -> None:
        if generated and self._began_ns is not None:
            self._durations_ns.append(now_ns - self._began_ns)
        if emission is not None and emission.epoch == self._epoch:
            self._newest = emission if self._executable(emission) else None

    def _executable(self, emission: Emission) -> bool:
        """Whether an actuator would accept it: finite, and within the limits as far as they can be checked here. In
        lockstep all rows are asked, those of finished episodes too."""
        actions: Array = emission.actions.numpy()
        within = ((actions >= self._lower) & (actions <= self._upper)) | self._relative
        return bool(np.isfinite(actions).all() and within.all())

    def aim(self, origin: ObservationOrigin, now_ns: int) -> Aim | None:
        newest = self._newest
        if newest is None or not self._durations_ns or origin.mono_ns < newest.origin.mono_ns:
            return None
        values, overlap = self._shifted(newest, origin)
        if overlap == 0:
            return None
        arrival_ns = now_ns + min(max(self._durations_ns), round(MOST_MEDIANS * median(self._durations_ns)))
        # An actuator that ticks more often than once per dt is in the middle of an action when the chunk comes.
        frozen = max(0, -(-(arrival_ns - origin.mono_ns) // self._dt_ns)) + 1
        weight = np.broadcast_to(weights(frozen, overlap, values.shape[1])[None, :, None], values.shape).copy()
        if self._relative.any():
            self._refer(values, weight, newest.origin, origin)
        return Aim(values, weight)

    def _shifted(self, newest: Emission, origin: ObservationOrigin) -> tuple[Array, int]:
        """(the old actions from the new origin on, [E, horizon, channels], zero after their end; their number)."""
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
        """Convert set points relative to the state at the old origin to the new one. If a state is unknown they stay
        free."""
        if before.reference is None or now.reference is None:
            weight[..., self._relative] = 0.0
            return
        moved = np.where(self._relative, before.reference - now.reference, 0.0)
        known = np.isfinite(moved)
        values += np.where(known, moved, 0.0)[:, None]
        weight *= known[:, None]


def weights(frozen: int, overlap: int, horizon: int) -> Array:
    """How strongly each action of a new chunk is held to the old one, [horizon] (Black et al. 2025, eq. 5): 1 for the
    `frozen` actions that will be executed before the chunk comes, then falling, 0 after the old chunk's end (padding
    never guides)."""
    frozen = min(frozen, overlap)
    steps = np.arange(horizon)
    left = (overlap - steps) / (overlap - frozen + 1)
    falling = left * np.expm1(np.clip(left, 0.0, 1.0)) / math.expm1(1.0)
    return np.where(steps < frozen, 1.0, np.where(steps < overlap, falling, 0.0))
