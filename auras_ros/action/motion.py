"""How a channel may move from one command to the next: rate, acceleration, and always room to brake.

A set point with a `max_acceleration` a has a pace, the change of its last command in one tick. Its next pace
differs from that by at most a·T², and never exceeds the largest pace from which it can still come to rest
before its limit; so it can always stop, and stopping is always allowed. Increments obey only the first rule:
they add up to a position too, but its limits are not known. A velocity's acceleration is its rate, which
`limits` checks.

A wanted value is followed exactly if that is allowed. Otherwise the channel catches up as fast as allowed, so
that it arrives with the pace of what it follows: a braking curve towards a moving goal, without overshooting
one that stands still. This module never decides what is wanted.
"""

from __future__ import annotations

import numpy as np

from .contract import BoolArray, FloatArray
from .limits import Limits

_ANYWHERE = 1e300  # stands for "no limit", and keeps sums finite


def largest_pace(room: FloatArray, change: FloatArray) -> FloatArray:
    """The largest step s of the next tick that leaves room to brake by `change` a tick: s + (s - change) +
    (s - 2·change) + … over the positive terms is at most `room`. A negative room counts as 0.

    With n further positive terms the sum is (n+1)·s - change·n(n+1)/2, and n follows from the room.
    """
    room = np.maximum(room, 0.0)
    with np.errstate(over="ignore"):
        terms = np.floor((np.sqrt(1.0 + 8.0 * (room / change)) - 1.0) / 2.0)
        pace: FloatArray = room / (terms + 1.0) + change * (terms / 2.0)
    return pace


class Motion:
    """The state after the last command; every next command is computed from it. Periods are `period_ns` long.

    `anchor` [channels]: the last command or a measured position; NaN if the position is not known, 0 for
    increments. `pace` and `undone` [channels with an acceleration]: the last change per period, and how far the
    last command stayed behind what was wanted (None: no trajectory was followed, so the next goal is taken to
    stand still). All of them are replaced, never written to, so that a shallow copy does not change.
    """

    def __init__(self, limits: Limits, period_ns: int) -> None:
        seconds = period_ns * 1e-9
        self._limits, self._period_ns = limits, period_ns
        self._step = limits.rate * seconds
        self._which = np.flatnonzero(np.isfinite(limits.acceleration))
        which, adds = self._which, limits.increments[self._which]
        self._bounded = len(which) > 0
        self._change: FloatArray = limits.acceleration[which] * seconds**2
        lower, upper, step = limits.lower[which], limits.upper[which], self._step[which]
        self._slowest = np.where(adds, np.maximum(lower, -step), -step)
        self._fastest = np.where(adds, np.minimum(upper, step), step)
        # The limits of the position that increments add up to are not known.
        self._lower, self._upper = np.where(adds, -_ANYWHERE, lower), np.where(adds, _ANYWHERE, upper)
        self.forget()

    def forget(self) -> None:
        """Forget the position; the robot is taken to be at rest."""
        self.anchor: FloatArray = self._limits.rest()
        self.stand()

    def stand(self) -> None:
        """Note that the set points have stood still for at least a period: the next one starts from rest."""
        self.pace: FloatArray = np.zeros(len(self._which))
        self.undone: FloatArray | None = None

    def stay(self) -> None:
        """Let set points rest at the last command; rates and increments are not changed."""
        self.pace = np.where(self._limits.increments[self._which], self.pace, 0.0)
        self.undone = None

    @property
    def moving(self) -> BoolArray:
        """Mask [channels] of what would have to brake: rates and paces other than zero."""
        moving: BoolArray = self._limits.velocities & (self.anchor != 0.0)
        moving[self._which] = self.pace != 0.0
        return moving

    def brake(self, staying: bool = False) -> FloatArray | None:
        """The wanted values [channels] that bring every channel to rest; None if a position is not known.

        Channels without an acceleration limit follow their hold policy and stop at once. `staying`: set points stay
        where they are instead.
        """
        wanted = self._limits.hold(self.anchor)
        if wanted is not None:
            wanted[self._which] = self.anchor[self._which]
            if staying:
                wanted = np.where(self._limits.rates, wanted, self.anchor)
        return wanted

    def advance(self, wanted: FloatArray, follow: bool) -> FloatArray | None:
        """The allowed command [channels] that is nearest to `wanted`; it counts as executed. None, with no change, if
        `wanted` is not finite. `follow`: `wanted` is part of a trajectory; otherwise a goal that stands still."""
        values = self._limits.guard(wanted, self.anchor, self._step)
        if values is None:
            return None
        if self._bounded:
            self._accelerate(wanted[self._which], values, follow)
        self.anchor = np.where(self._limits.increments, 0.0, values)
        return values

    def _accelerate(self, wanted: FloatArray, values: FloatArray, follow: bool) -> None:
        """Write the commands of channels with an acceleration limit into `values`; update `pace` and `undone`."""
        anchor = self.anchor[self._which]
        start = np.where(np.isnan(anchor), values[self._which], anchor)  # a first command has no pace
        goal = np.minimum(np.maximum(wanted, self._lower), self._upper)
        gap = goal - start
        behind = self.undone if follow and self.undone is not None else gap
        distance = np.abs(behind)
        rooms = np.stack((distance, start - self._lower, self._upper - start))
        catch_up, below, above = largest_pace(rooms, self._change)
        low = np.maximum(np.maximum(self.pace - self._change, self._slowest), -below)
        high = np.minimum(np.minimum(self.pace + self._change, self._fastest), above)
        # The goal moved by gap - behind: take over its pace, and catch up with `behind` along a braking curve.
        pace = np.minimum(np.maximum(gap - behind + np.copysign(catch_up, behind), low), high)
        lands = (distance <= self._change) & (low <= gap) & (gap <= high)
        reached = np.where(lands, goal, start + pace)
        reached = np.minimum(np.maximum(reached, self._lower), self._upper)
        values[self._which] = reached
        self.pace = reached - start
        self.undone = goal - reached if follow else None

    def coarse(self, period_ns: int) -> Motion:
        """A copy of this motion with other periods, to look ahead with."""
        ahead = Motion(self._limits, period_ns)
        ahead.anchor, ahead.undone = self.anchor, self.undone
        start = np.nan_to_num(self.anchor[self._which])  # an unknown position has no pace
        below, above = largest_pace(np.stack((start - self._lower, self._upper - start)), ahead._change)
        slowest, fastest = np.maximum(ahead._slowest, -below), np.minimum(ahead._fastest, above)
        ahead.pace = np.clip(self.pace * (period_ns / self._period_ns), slowest, fastest)
        return ahead
