"""The seam between two chunks: a linear blend from the active trajectory into the new one.

Two chunks from two observations differ; switching in one tick would be a jerk. During `ticks` ticks the old
trajectory's own future (while it lasts, else its last command) fades out and the new one fades in. Only kinds
for which a mean of two commands has a meaning are blended: absolute, delta_origin, velocity. A gripper
switches; increments are joined by their path. This module never limits anything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .contract import BoolArray, ChannelKind, Contract, FloatArray

Trajectory = Callable[[int], "FloatArray | None"]

BLENDING = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN, ChannelKind.VELOCITY)


class Seam:
    """Blends over the ticks `start .. start + ticks - 1`. The old trajectory is sampled once, at the switch.

    That makes a seam within a seam simple: the old trajectory is then itself a blend. `last` [channels] is used
    where the old trajectory has ended or there was none; if it is NaN (nothing was ever commanded), nothing is
    blended.
    """

    def __init__(self, contract: Contract, start: int, ticks: int, old: Trajectory, last: FloatArray) -> None:
        mask: BoolArray = contract.is_kind(*BLENDING)
        self._start, self._ticks = start, ticks
        self._old = np.empty((ticks, len(last)))
        self._old_weight = np.zeros((ticks, len(last)))
        before = last
        for k in range(ticks):
            values = old(start + k)
            before = before if values is None else values
            self._old[k] = before
            self._old_weight[k] = np.where(mask & np.isfinite(before), 1.0 - (k + 1) / (ticks + 1), 0.0)
        self._old[self._old_weight == 0.0] = 0.0  # NaN times zero would be NaN

    def active(self, count: int) -> bool:
        """Whether the tick with this number lies within the seam."""
        return 0 <= count - self._start < self._ticks

    def blend(self, count: int, new: FloatArray) -> FloatArray:
        """The blended values [channels] at a tick within the seam; `new` beyond it."""
        if not self.active(count):
            return new
        weight = self._old_weight[count - self._start]
        blended: FloatArray = new + weight * (self._old[count - self._start] - new)
        return blended
