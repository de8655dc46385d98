"""The last check before a command: finite, within its limits, no faster than its rate.

Two places use it. A chunk is screened when it is offered: values slightly beyond a limit (policies overshoot
by rounding and by noise) are clipped and counted; a value further out refuses the whole chunk, and so does
NaN or Inf, because the rest of such a chunk cannot be trusted either. "Slightly" is `clip_tolerance` times
the channel's range (default 0.02). Then every command passes `guard` through `motion`, hold values too.
Comparisons and np.clip let NaN through, so finiteness is always checked separately. This module never
decides what to do about a refusal, and keeps no state from tick to tick.
"""

from __future__ import annotations

import numpy as np

from .contract import BoolArray, ChannelKind, Contract, ContractError, FloatArray, HoldPolicy
from .verdict import ChunkRefusal, Rejected

DEFAULT_CLIP_TOLERANCE = 0.02
MAX_BRAKING_S = 60.0  # longest time to come to rest; more does not count as stopping


class Limits:
    """The contract's limits as vectors [channels], for ticks of `tick_ns`. Raises ContractError.

    `rate` limits the change of a command per second, `acceleration` the change of that; inf means no limit. A
    velocity's acceleration is the rate of its command, so it is in `rate`.
    """

    def __init__(self, contract: Contract, tick_ns: int, clip_tolerance: float = DEFAULT_CLIP_TOLERANCE) -> None:
        if not 0.0 <= clip_tolerance <= 1.0:
            raise ContractError(f"limits: clip_tolerance: {clip_tolerance!r} is not in 0..1")
        channels = contract.channels
        self.names, self.tick_ns = contract.names, tick_ns
        self.lower = np.array([channel.lower for channel in channels])
        self.upper = np.array([channel.upper for channel in channels])
        self.slack = clip_tolerance * (self.upper - self.lower)
        self.increments = contract.is_kind(ChannelKind.DELTA_PREVIOUS)
        self.velocities = contract.is_kind(ChannelKind.VELOCITY)
        self.rate = _bounds([channel.max_rate for channel in channels])
        self.acceleration = _bounds([channel.max_acceleration for channel in channels])
        self.rate[self.velocities] = np.minimum(self.rate, self.acceleration)[self.velocities]
        self.acceleration[self.velocities] = np.inf
        self.step = self.rate * (tick_ns * 1e-9)
        self.rates = self.increments | self.velocities  # a controller may continue these without further commands
        self._keeps_last = np.array([channel.hold is HoldPolicy.LAST for channel in channels])
        self._hold_value = np.array([channel.hold_value or 0.0 for channel in channels])
        self._check_braking()

    def _check_braking(self) -> None:
        """Refuse limits with which a channel could need more than MAX_BRAKING_S to come to rest."""
        fastest = np.maximum(-self.lower, self.upper)  # of a velocity
        with np.errstate(over="ignore", invalid="ignore"):
            # The top speed of a set point between its limits, and of increments at one per tick.
            reach = np.sqrt(self.acceleration) * np.sqrt(self.upper - self.lower)
            reach[self.increments] = (fastest / (self.tick_ns * 1e-9))[self.increments]
            seconds = np.where(self.velocities, fastest / self.rate, np.minimum(self.rate, reach) / self.acceleration)
        bounded = np.isfinite(np.where(self.velocities, self.rate, self.acceleration))
        slow = bounded & ~(seconds <= MAX_BRAKING_S)
        if slow.any():
            channel = int(np.argmax(slow))
            text = f"{seconds[channel]:.3g} s to brake from full speed, at most {MAX_BRAKING_S:g}"
            raise ContractError(f"channel {self.names[channel]!r}: max_acceleration: {text}")

    def rest(self) -> FloatArray:
        """The initial anchor [channels]: NaN for positions, 0 for rates and increments.

        Nothing else moves the robot, so its rates are zero; its position is not known.
        """
        return np.where(self.increments | self.velocities, 0.0, np.nan)

    def screen(self, values: FloatArray, used: BoolArray) -> int | Rejected:
        """Check the entries of `values` [horizon, channels] where `used`; clip overshoot in place.

        Returns the number of clipped values, or the refusal, which names step and channel.
        """
        bad = used & ~np.isfinite(values)
        if bad.any():
            return self._refuse(ChunkRefusal.NON_FINITE, "is not finite", values, bad)
        over = used & ((values < self.lower - self.slack) | (values > self.upper + self.slack))
        if over.any():
            return self._refuse(ChunkRefusal.OVER_LIMIT, "is beyond its limits", values, over)
        outside = used & ((values < self.lower) | (values > self.upper))
        np.clip(values, self.lower, self.upper, out=values)
        return int(np.count_nonzero(outside))

    def _refuse(self, reason: ChunkRefusal, text: str, values: FloatArray, bad: BoolArray) -> Rejected:
        step, channel = (int(i) for i in np.argwhere(bad)[0])
        limits = f"[{self.lower[channel]:g}, {self.upper[channel]:g}]"
        value = values[step, channel]
        return Rejected(reason, f"step {step}, channel {self.names[channel]!r}: {value:g} {text} {limits}")

    def guard(self, wanted: FloatArray, anchor: FloatArray, step: FloatArray | None = None) -> FloatArray | None:
        """The nearest allowed command [channels] to `wanted`, at most one `step` away from `anchor`.

        `anchor` is the last command; NaN if there was none (no rate limit yet), 0 for increments. None if any
        wanted value is not finite: there is no nearest command to NaN.
        """
        if not np.isfinite(wanted).all():
            return None
        step = self.step if step is None else step
        # Value limits take precedence over the rate; an anchor is always within them, so both can be kept.
        low = np.fmax(self.lower, anchor - step)
        high = np.fmin(self.upper, anchor + step)
        guarded: FloatArray = np.minimum(np.maximum(wanted, low), high)
        return guarded

    def hold(self, anchor: FloatArray) -> FloatArray | None:
        """What the hold policies ask for [channels], before limits.

        None if a position was never commanded or measured: a robot is never sent an invented position, nor a
        jump to a hold value from an unknown position.
        """
        if np.isnan(anchor).any():
            return None
        return np.where(self._keeps_last, anchor, self._hold_value)

    def measured(self, current: FloatArray) -> FloatArray | Rejected:
        """A measured position as an anchor [channels], NaN for what was not measured.

        A position slightly outside its limits is clipped; further out it is refused, because the first command
        back within the limits would be a jump. Increments have no position, and a rate starts from its last
        command: what is reported under a velocity's name may be the joint's position.
        """
        anchor = np.array(current, dtype=np.float64)
        if anchor.shape != self.lower.shape:
            text = f"measured position: shape {anchor.shape}, expected {self.lower.shape}"
            return Rejected(ChunkRefusal.BAD_POSITION, text)
        anchor[self.increments | self.velocities] = np.nan
        outside = (anchor < self.lower - self.slack) | (anchor > self.upper + self.slack)
        if outside.any():
            channel = int(np.argmax(outside))
            limits = f"[{self.lower[channel]:g}, {self.upper[channel]:g}]"
            text = f"measured position of {self.names[channel]!r}: {anchor[channel]:g} is outside its limits {limits}"
            return Rejected(ChunkRefusal.BAD_POSITION, text)
        return np.clip(anchor, self.lower, self.upper)


def _bounds(values: list[float | None]) -> FloatArray:
    return np.array([np.inf if value is None else value for value in values])
