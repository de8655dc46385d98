"""A horizon that is yet to be checked: what the active plan wants, and the motion to check it with.

The plan is taken under the stream's lock and the rows are worked out outside it, in another thread than the
ticks', because a hundred rows take longer than a tick may wait. This module never changes the plan or the
motion that it was taken from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .chunk import Provenance
from .command import Horizon
from .contract import BoolArray, FloatArray
from .ensemble import Ensemble, IntArray
from .motion import Motion


@dataclass(frozen=True, eq=False, slots=True)
class Means:
    """Where an ensemble is asked: at tick `counts` [steps], at the times `times_ns` [steps]."""

    ensemble: Ensemble
    counts: IntArray
    times_ns: IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Ahead:
    """What is wanted from step `index` on: `plan` [steps, channels] or means; `increments` [channels] as their
    path on top of `executed` [channels]. `motion`: a copy of where the last command left the robot; `dt_ns`: a
    policy step."""

    index: int
    plan: FloatArray | Means
    increments: BoolArray
    executed: FloatArray
    provenance: Provenance
    motion: Motion
    dt_ns: int

    def checked(self) -> Horizon | None:
        """Each row guarded in turn; None where there is none, or one is not finite. Takes longer than a tick may."""
        if isinstance(self.plan, Means):
            values = self.plan.ensemble.ahead(self.plan.counts, self.plan.times_ns)
        else:
            values = self.plan.copy()
        if len(values) == 0:
            return None
        path = np.vstack([self.executed, values])
        values[:, self.increments] = np.diff(path, axis=0)[:, self.increments]
        motion = self.motion.coarse(self.dt_ns)
        for row, wanted in enumerate(values):
            guarded = motion.advance(wanted, follow=True)
            if guarded is None:
                return None
            values[row] = guarded
        return Horizon(self.index, values, self.provenance)
