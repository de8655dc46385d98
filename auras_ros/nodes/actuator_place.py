"""Where the robot is, as `joint_states` tell, and whether it is still where our commands can have brought it.

Several drivers may publish, each its own joints: places are joined by name, each with its age. A robot moves from where
it was to where it was sent; one that is found elsewhere was moved by somebody else, or is not the one that we knew.
Nothing here acts on what it finds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from auras_ros.action import ChannelKind, Contract
from auras_ros.action.contract import FloatArray
from auras_ros.nodes.messages import MessageError

SET_POINTS = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN)
MAX_AGE_MS = 500
LAG_NS = 1_000_000_000  # how far a robot may be behind its commands
EVERY_NS = 10_000_000  # of the commands of that time so many are remembered


class Place:
    """`take` and `jumped` are of the executor's thread, `silent` of any.

    tolerance: share of a channel's range by which it may be outside of what its commands explain; 0: not watched.
    """

    def __init__(self, contract: Contract, tolerance: float) -> None:
        channels = contract.channels
        self._names = contract.names
        self._set_points = [i for i, each in enumerate(channels) if each.kind in SET_POINTS]
        self._watched = self._set_points if tolerance > 0 else []
        self._room = np.array([tolerance * (each.upper - each.lower) for each in channels])
        self._values = np.full(len(channels), math.nan)
        self._times_ns: list[int | None] = [None] * len(channels)
        self._heard_ns: int | None = None
        self._commanded: deque[tuple[int, FloatArray]] = deque()
        self._jump = ""

    def take(self, names: Sequence[str], positions: FloatArray, now_ns: int, commanded: FloatArray | None) -> None:
        """What one message says. commanded [channels]: the command in force, None while nothing is. Raises
        MessageError for a joint that is named twice."""
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise MessageError(f"joint_states: {twice[:80]!r} is named twice")
        found = dict(zip(names, positions.tolist(), strict=False))
        known = self._explained(now_ns, commanded)
        self._heard_ns = now_ns
        for i, name in enumerate(self._names):
            value = found.get(name, math.nan)
            if not math.isfinite(value):
                continue
            if commanded is not None and i in self._watched and not self._jump:
                self._jump = self._judged(i, value, known)
            self._values[i], self._times_ns[i] = value, now_ns

    def _explained(self, now_ns: int, commanded: FloatArray | None) -> FloatArray:
        """Where each channel may be: [cases, channels], where it was and where it was sent lately."""
        if commanded is None:
            self._commanded.clear()
        elif not self._commanded or now_ns - self._commanded[-1][0] >= EVERY_NS:
            self._commanded.append((now_ns, commanded))
        while self._commanded and now_ns - self._commanded[0][0] > LAG_NS:
            self._commanded.popleft()
        return np.stack([self._values, *(values for _, values in self._commanded)])

    def _judged(self, i: int, value: float, known: FloatArray) -> str:
        """Why a measured value cannot be; empty where it can."""
        lately = known[:, i]
        if not np.isfinite(lately[0]):
            return ""
        low, high = np.nanmin(lately) - self._room[i], np.nanmax(lately) + self._room[i]
        if low <= value <= high:
            return ""
        return f"{self._names[i]} is at {value:g}, where it cannot have come from {lately[0]:g} by our commands"

    def jumped(self) -> str:
        """Why the robot is not where it should be, once; empty while it is."""
        jump, self._jump = self._jump, ""
        return jump

    @property
    def position(self) -> list[float] | None:
        """The newest place [channels], NaN for what was never told; None before the first message."""
        return None if self._heard_ns is None else self._values.tolist()

    def age_ns(self, now_ns: int) -> int | None:
        """Of the oldest place that a set point needs, where it is known; None before the first message."""
        if self._heard_ns is None:
            return None
        times_ns = [self._times_ns[i] for i in self._set_points]
        return now_ns - min((each for each in times_ns if each is not None), default=self._heard_ns)

    @property
    def unknown(self) -> str:
        """The first channel that commands a position and was never told of; empty if there is none."""
        return next((self._names[i] for i in self._set_points if self._times_ns[i] is None), "")

    def silent(self, now_ns: int) -> str:
        """What has not been told of for too long; empty where nothing is missed."""
        for i in self._watched:
            told_ns = self._times_ns[i]
            if told_ns is not None and now_ns - told_ns > MAX_AGE_MS * 1_000_000:
                return f"joint_states say nothing of {self._names[i]} for more than {MAX_AGE_MS} ms"
        return ""
