"""The robot's position from `joint_states`, and whether our commands can have brought it there.

Several drivers may publish, each its own joints: positions are joined by name, each with its age. A robot moves from
where it was to where it was sent; if it is elsewhere, something else moved it, or it is another robot.
This detects jumps, and drift faster than the tolerance per second. It cannot detect slower drift, or a jump to a
recently commanded position. After a silence the robot must be near its last position and the newest command, or it
counts as another robot. A continuous joint may be reported within one turn: the wrap-around is no jump. Nothing here
acts on what is found. Before arming, when no command explains anything, `joint_publishers` judges the same messages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from auras_ros.action import Contract
from auras_ros.action.contract import NEEDS_PLACE, FloatArray
from auras_ros.nodes.common.joint_publishers import NEVER_NS, within_turns
from auras_ros.nodes.common.texts import MessageError

MAX_AGE_MS = 500
AFTER_SILENCE = 0.1  # upper bound of the tolerance after a silence of MAX_AGE_MS
LAG_NS = 1_000_000_000  # how far a robot may be behind its commands


class PositionMonitor:
    """`take` and its results belong to the executor's thread, `commanded` to the tick thread, `silent` to any.

    tolerance: share of a channel's range by which a position may be outside of what the commands explain, at most a
    tenth after a silence; 0: not checked.
    """

    def __init__(self, contract: Contract, tolerance: float) -> None:
        channels = contract.channels
        self._names = contract.names
        self._set_points = [i for i, each in enumerate(channels) if each.kind in NEEDS_PLACE]
        self._watched = self._set_points if tolerance > 0 else []
        self._range = np.array([each.upper - each.lower for each in channels])
        self._tolerance = tolerance
        self.turns = [math.inf] * len(channels)  # a full turn in the channel's unit, for continuous joints
        self._values = np.full(len(channels), math.nan)
        self._unwrapped = self._values.copy()  # the same, plus the full turns that the commands explain
        self._times_ns: list[int | None] = [None] * len(channels)
        self._stamps_ns = [0] * len(channels)
        self._repeated_ns = [NEVER_NS] * len(channels)  # when a position came with the stamp of the one before
        self._heard_ns: int | None = None
        self._jump = ""
        # What explains a position: smallest and largest commands of the current second and of the previous one, and the
        # positions at the beginning of both. Arrays are replaced, never written to.
        self._low = self._high = self._newest = self._values
        self._before: tuple[FloatArray, ...] = ()
        self._since_ns: int | None = None  # None: not checking

    def commanded(self, values: FloatArray) -> None:
        """Note a command [channels] that was sent."""
        self._low, self._high = np.fmin(self._low, values), np.fmax(self._high, values)
        self._newest = values

    def take(
        self, names: Sequence[str], positions: FloatArray, now_ns: int, *, watching: bool = False, stamp_ns: int = 0
    ) -> None:
        """Take one message. watching: commands are active. stamp_ns: the message's own, 0 if it has none; a stamp that
        does not advance does not renew the age. Raises MessageError for a joint that is named twice."""
        if len(set(names)) != len(names):
            twice, _ = Counter(names).most_common(1)[0]
            raise MessageError(f"joint_states: {twice[:80]!r} is named twice")
        found = dict(zip(names, positions.tolist(), strict=False))
        self._heard_ns = now_ns
        for i, name in enumerate(self._names):
            value = unwrapped = found.get(name, math.nan)
            if not math.isfinite(value):
                continue
            if stamp_ns and stamp_ns == self._stamps_ns[i]:
                self._repeated_ns[i] = now_ns
                continue
            silent = self._is_silent(i, now_ns)
            if watching and i in self._watched and (explained := self._explained(i, silent)):
                unwrapped = within_turns(value, *explained, self.turns[i])
                self._jump = self._jump or self._judged(i, unwrapped, *explained, silent)
            self._values[i], self._times_ns[i], self._stamps_ns[i] = value, now_ns, stamp_ns
            self._unwrapped[i] = unwrapped
        self._watch(now_ns, watching)

    def _watch(self, now_ns: int, watching: bool) -> None:
        """Start the ranges from the current position, move on to the next second, or forget them."""
        here = self._unwrapped.copy()
        if not watching:
            self._low = self._high = self._newest = here
            self._before, self._since_ns = (), None
        elif self._since_ns is None:
            self._before, self._since_ns = (here,), now_ns
        elif now_ns - self._since_ns > LAG_NS:
            self._before = (self._low, self._high, self._before[-1], here)
            self._low = self._high = here
            self._since_ns = now_ns

    def _is_silent(self, i: int, now_ns: int) -> bool:
        told_ns = self._times_ns[i]
        return told_ns is not None and now_ns - told_ns > MAX_AGE_MS * 1_000_000

    def _explained(self, i: int, silent: bool) -> tuple[float, float] | None:
        """The range in which the joint can be; None if nothing is known. After a silence it may be another robot, so
        earlier commands do not explain its position."""
        near = (self._unwrapped, self._newest) if silent else (self._low, self._high, *self._before)
        places = [float(each[i]) for each in near]
        known = [each for each in places if math.isfinite(each)]
        return (min(known), max(known)) if known else None

    def _judged(self, i: int, value: float, low: float, high: float, silent: bool) -> str:
        """Why a measured value is impossible; empty if it is possible."""
        if self._times_ns[i] is None:
            return ""
        room = (min(self._tolerance, AFTER_SILENCE) if silent else self._tolerance) * self._range[i]
        if low - room <= value <= high + room:
            return ""
        return f"{self._names[i]} is at {value:g}, and no command explains how it came there from {self._values[i]:g}"

    def jumped(self) -> str:
        """Why the robot's position is impossible, once; empty if it is possible."""
        jump, self._jump = self._jump, ""
        return jump

    @property
    def position(self) -> list[float] | None:
        """The newest position [channels], NaN for joints that were never reported; None before the first message."""
        return None if self._heard_ns is None else self._values.tolist()

    def age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest known position that a set point needs; None before the first message."""
        if self._heard_ns is None:
            return None
        times_ns = [self._times_ns[i] for i in self._set_points]
        return now_ns - min((each for each in times_ns if each is not None), default=self._heard_ns)

    @property
    def unknown(self) -> str:
        """The first channel that commands a position and whose joint was never reported; empty if there is none."""
        return next((self._names[i] for i in self._set_points if self._times_ns[i] is None), "")

    def silent(self, now_ns: int) -> str:
        """Which joint was not reported for too long; empty if none."""
        for i in range(len(self._names) if self._tolerance > 0 else 0):
            if self._is_silent(i, now_ns):
                text = f"joint_states: no new position of {self._names[i]} for more than {MAX_AGE_MS} ms"
                repeats = now_ns - self._repeated_ns[i] <= MAX_AGE_MS * 1_000_000
                return f"{text}: all come with one stamp, which the driver does not renew" if repeats else text
        return ""
