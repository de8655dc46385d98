"""How a channel may move from one command to the next: rate, acceleration, and always room to brake.

A set point with a `max_acceleration` a has a pace, the change of its last command in one tick. Its next pace
differs from that by at most a·T², and is never more than the largest from which it can still come to rest
before its limit; so it can always stop, and stopping is always allowed. Increments keep the first rule: what
they add up to is a position too, of which no limit is known. A velocity's acceleration is its rate, which
`limits` keeps.

What is wanted is followed exactly where that is allowed. Otherwise it is caught up with as fast as is allowed
and so that the channel arrives with the pace of what it follows: a braking curve towards a moving goal,
without overshooting one that stands still. This module never says what is wanted.
"""

from __future__ import annotations

import numpy as np

from .contract import BoolArray, FloatArray
from .limits import Limits

_ANYWHERE = 1e300  # a limit that is none, and with which sums stay finite


def largest_pace(room: FloatArray, change: FloatArray) -> FloatArray:
    """The largest next step s, one tick's, that leaves room to brake by `change` a tick: s + (s - change) +
    (s - 2·change) + … over the positive terms is at most `room`. Rooms below zero count as none.

    With n further positive terms the sum is (n+1)·s - change·n(n+1)/2, and n follows from the room.
    """
    room = np.maximum(room, 0.0)
    with np.errstate(over="ignore"):
        terms = np.floor((np.sqrt(1.0 + 8.0 * (room / change)) - 1.0) / 2.0)
        pace: FloatArray = room / (terms + 1.0) + change * (terms / 2.0)
    return pace


class Motion:
    """Where the last command left the robot, and the only way to the next one, for periods of `period_ns`.

    `anchor` [channels]: the last command or a measured position; NaN where the position is not known, 0 for
    increments. `pace` and `undone` [channels with an acceleration]: the last change per period, and what the
    last command left of what was wanted (None: no trajectory was, so the next goal is taken to stand still). All
    of them are replaced, never written to: a shallow copy keeps what it has.
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
        # Of what increments add up to no limit is known.
        self._lower, self._upper = np.where(adds, -_ANYWHERE, lower), np.where(adds, _ANYWHERE, upper)
        self.forget()

    def forget(self) -> None:
        """Nothing is known of the robot but that it is at rest."""
        self.anchor: FloatArray = self._limits.rest()
        self.stand()

    def stand(self) -> None:
        """The set points have stood still for at least a period: the next one starts from rest."""
        self.pace: FloatArray = np.zeros(len(self._which))
        self.undone: FloatArray | None = None

    def stay(self) -> None:
        """The set points stand where the last command put them; what rates and increments do is left as it is."""
        self.pace = np.where(self._limits.increments[self._which], self.pace, 0.0)
        self.undone = None

    @property
    def moving(self) -> BoolArray:
        """The channels [channels] that would have to brake: rates other than zero, and paces."""
        moving: BoolArray = self._limits.velocities & (self.anchor != 0.0)
        moving[self._which] = self.pace != 0.0
        return moving

    def brake(self, staying: bool = False) -> FloatArray | None:
        """What to want in order to come to rest [channels]; None where a position is not known.

        Channels without a bound on their acceleration follow their hold policy, they stop at once. `staying`: set
        points follow none, they are wanted where they are.
        """
        wanted = self._limits.hold(self.anchor)
        if wanted is not None:
            wanted[self._which] = self.anchor[self._which]
            if staying:
                wanted = np.where(self._limits.rates, wanted, self.anchor)
        return wanted

    def advance(self, wanted: FloatArray, follow: bool) -> FloatArray | None:
        """The nearest allowed command [channels] to `wanted`, taken as executed; None, and nothing is, where
        `wanted` is not finite. `follow`: what is wanted is a trajectory; otherwise a goal that stands still."""
        values = self._limits.guard(wanted, self.anchor, self._step)
        if values is None:
            return None
        if self._bounded:
            self._accelerate(wanted[self._which], values, follow)
        self.anchor = np.where(self._limits.increments, 0.0, values)
        return values

    def _accelerate(self, wanted: FloatArray, values: FloatArray, follow: bool) -> None:
        """Put the accelerated channels' commands into `values`, and remember pace and what was left undone."""
        anchor = self.anchor[self._which]
        start = np.where(np.isnan(anchor), values[self._which], anchor)  # a first command stands where it is put
        goal = np.minimum(np.maximum(wanted, self._lower), self._upper)
        gap = goal - start
        behind = self.undone if follow and self.undone is not None else gap
        distance = np.abs(behind)
        rooms = np.stack((distance, start - self._lower, self._upper - start))
        catch_up, below, above = largest_pace(rooms, self._change)
        low = np.maximum(np.maximum(self.pace - self._change, self._slowest), -below)
        high = np.minimum(np.minimum(self.pace + self._change, self._fastest), above)
        # The goal moved by gap - behind: keep its pace, and make good what is behind along a braking curve.
        pace = np.minimum(np.maximum(gap - behind + np.copysign(catch_up, behind), low), high)
        lands = (distance <= self._change) & (low <= gap) & (gap <= high)
        reached = np.where(lands, goal, start + pace)
        reached = np.minimum(np.maximum(reached, self._lower), self._upper)
        values[self._which] = reached
        self.pace = reached - start
        self.undone = goal - reached if follow else None

    def coarse(self, period_ns: int) -> Motion:
        """The same motion in other periods, to look ahead with: a copy that leaves this one as it is."""
        ahead = Motion(self._limits, period_ns)
        ahead.anchor, ahead.undone = self.anchor, self.undone
        start = np.nan_to_num(self.anchor[self._which])  # where it is not known there is no pace
        below, above = largest_pace(np.stack((start - self._lower, self._upper - start)), ahead._change)
        slowest, fastest = np.maximum(ahead._slowest, -below), np.minimum(ahead._fastest, above)
        ahead.pace = np.clip(self.pace * (period_ns / self._period_ns), slowest, fastest)
        return ahead
