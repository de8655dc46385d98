"""The output: every command passes here, is limited, and is recorded as executed.

Nothing bypasses it, neither hold values nor the commands after disarm. This module never decides which
command is due.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .align import Timeline
from .contract import BoolArray, FloatArray
from .limits import Limits
from .motion import Motion
from .tally import Tally


@dataclass(frozen=True, eq=False, slots=True)
class GuardedCommand:
    """A command [channels] after limits, and the indices of the channels that a limit changed."""

    values: FloatArray
    limited: tuple[int, ...]


class CommandOutput:
    """`motion` is the state after the last command. Executed increments are added to the timeline."""

    def __init__(self, limits: Limits, timeline: Timeline, tally: Tally) -> None:
        self._limits, self._timeline, self._tally = limits, timeline, tally
        self.motion = Motion(limits, timeline.tick_ns)
        self.running = False  # whether the last command has a rate or an increment other than zero
        self._before = self.motion.anchor, self.running  # what `take_back` restores
        self._starting: BoolArray | None = None  # [channels] that the next command leaves where they were measured

    def follow(self, wanted: FloatArray) -> GuardedCommand | None:
        """Send the trajectory's value for now; None, with nothing recorded, if it is not finite."""
        return self._send(wanted, True)

    def repeat(self) -> GuardedCommand | None:
        """The last command again; None if there was none.

        A velocity keeps its rate. Set points and increments come to rest: at once, or by braking.
        """
        return self._send(self.motion.anchor, False)

    def hold(self) -> GuardedCommand | None:
        """What the hold policies ask for; None if a position is not known.

        A channel with an acceleration limit goes there along an allowed path; for `last` that is the shortest
        braking path.
        """
        wanted = self._limits.hold(self.motion.anchor)
        return None if wanted is None else self._send(wanted, False)

    def rest(self, staying: bool = False) -> GuardedCommand | None:
        """A command on the shortest way to rest; None if a position is not known. Hold values that cannot be reached
        while braking are dropped: no command follows. `staying`: see `Motion.brake`."""
        wanted = self.motion.brake(staying)
        return None if wanted is None else self._send(wanted, False)

    def forget(self) -> None:
        """Forget the robot's position."""
        self.motion.forget()
        self.running = False
        self._starting = None

    def take_back(self) -> None:
        """The last command was not published: the one before it is still in effect."""
        self.motion.anchor, self.running = self._before

    def place(self, measured: FloatArray, commanded: bool, stay: bool = False) -> None:
        """Start from a measured position [channels]. NaN leaves a channel unchanged. stay: the next command is the
        measured position for every set point that starts from it, whatever is wanted.

        commanded: commands are being published. They continue from the last one, however far the measured position
        lags behind it: a hold must not creep towards a robot that sags. So do those of a channel that still brakes.
        """
        anchor = self.motion.anchor
        kept = np.isnan(measured) | self.motion.moving | (commanded & ~np.isnan(anchor))
        self.motion.anchor = np.where(kept, anchor, measured)
        self._starting = ~kept & ~self._limits.rates if stay else None

    def _send(self, wanted: FloatArray, follow: bool) -> GuardedCommand | None:
        before = self.motion.anchor, self.running
        if self._starting is not None:
            wanted = np.where(self._starting, self.motion.anchor, wanted)
        values = self.motion.advance(wanted, follow)
        if values is None:
            return None
        self._before, self.running = before, bool(values[self._limits.rates].any())
        self._starting = None
        increments = self._limits.increments
        self._timeline.executed = self._timeline.executed + np.where(increments, values, 0.0)
        self._tally.published += 1
        changed = values != wanted
        if not changed.any():
            return GuardedCommand(values, ())
        self._tally.limited_ticks += 1
        return GuardedCommand(values, tuple(np.flatnonzero(changed).tolist()))
