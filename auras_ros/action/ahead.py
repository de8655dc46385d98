"""The rest of the active chunk before it is limited, and the motion to limit it with.

It is copied under the stream's lock, and the rows are computed outside the lock, in another thread than the
ticks', because a hundred rows take longer than a tick may wait. This module never changes the chunk or the
motion that it was copied from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .chunk import Provenance
from .command import Horizon
from .contract import BoolArray, FloatArray
from .motion import Motion


@dataclass(frozen=True, eq=False, slots=True)
class Ahead:
    """The actions from step `index` on: `plan` gives a new array of them [steps, channels], in which `increments`
    [channels] are a path on top of `executed` [channels]. `motion`: a copy of the state after the last command;
    `dt_ns`: the policy step."""

    index: int
    plan: Callable[[], FloatArray]
    increments: BoolArray
    executed: FloatArray
    provenance: Provenance
    motion: Motion
    dt_ns: int

    def checked(self, is_over: Callable[[], bool] = lambda: False) -> Horizon | None:
        """The rows, limited one after the other; None if there is none, if one is not finite, or once it `is_over`.
        Too slow for a tick."""
        values = self.plan()
        if len(values) == 0:
            return None
        path = np.vstack([self.executed, values])
        values[:, self.increments] = np.diff(path, axis=0)[:, self.increments]
        motion = self.motion.coarse(self.dt_ns)
        for row, wanted in enumerate(values):
            guarded = None if is_over() else motion.advance(wanted, follow=True)
            if guarded is None:
                return None
            values[row] = guarded
        return Horizon(self.index, values, self.provenance)
