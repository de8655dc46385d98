"""The way out: every command passes here, is guarded, and is recorded as executed.

Nothing goes round it, neither hold values nor the final command after disarm. This module never decides
which command is due.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .align import Timeline
from .contract import FloatArray
from .limits import Limits


@dataclass(frozen=True, eq=False, slots=True)
class Sent:
    """A guarded command [channels] and the indices of the channels that a limit changed."""

    values: FloatArray
    limited: tuple[int, ...]


class Output:
    """`anchor` [channels] is where the next command starts from: the last one, or a measured position; NaN
    where the position is not known, 0 for increments. Executed increments go to the timeline."""

    def __init__(self, limits: Limits, timeline: Timeline) -> None:
        self._limits, self._timeline = limits, timeline
        self.anchor = limits.rest()
        self.published = 0
        self.limited_ticks = 0

    def send(self, wanted: FloatArray) -> Sent | None:
        """Guard and record; None, and nothing is recorded, where `wanted` is not finite."""
        values = self._limits.guard(wanted, self.anchor)
        if values is None:
            return None
        increments = self._limits.increments
        self._timeline.executed = self._timeline.executed + np.where(increments, values, 0.0)
        self.anchor = np.where(increments, 0.0, values)
        self.published += 1
        changed = values != wanted
        if not changed.any():
            return Sent(values, ())
        self.limited_ticks += 1
        return Sent(values, tuple(np.flatnonzero(changed).tolist()))

    def repeat(self) -> Sent | None:
        """The last command once more (increments: none); None where there was none."""
        return self.send(self.anchor)

    def hold(self) -> Sent | None:
        """What the hold policies ask for; None where a position is not known."""
        wanted = self._limits.hold(self.anchor)
        return None if wanted is None else self.send(wanted)

    def final(self) -> Sent | None:
        """The hold command with every velocity at rest, then forget where the robot is.

        A velocity skips its acceleration limit here: nothing follows, so a ramp would never end.
        """
        sent = self.hold()
        self.anchor = self._limits.rest()
        if sent is not None:
            sent.values[self._limits.velocities] = 0.0
        return sent

    def place(self, measured: FloatArray) -> None:
        """Start from a measured position [channels]; NaN leaves a channel as it was."""
        self.anchor = np.where(np.isnan(measured), self.anchor, measured)
