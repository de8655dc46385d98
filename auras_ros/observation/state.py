"""The robot's state by joint name: messages list joints in any order, a policy has its own order. Several drivers may
publish, each its own joints.

This module never fills in a missing joint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .fault import FaultName, ObservationError, ObservationFault
from .slot import LatestSlot, Stamped, stamped_at

StateArray = npt.NDArray[np.float64]


class JointMap:
    """Picks `names` out of messages."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._known = frozenset(self.names)
        if len(self._known) != len(self.names):
            raise ValueError(f"joints: a name is used more than once: {', '.join(self.names)}")

    def wants(self, names: Iterable[str]) -> bool:
        """Whether any of these joints belongs to this map."""
        return not self._known.isdisjoint(names)

    def part(self, names: Sequence[str], positions: npt.ArrayLike) -> dict[str, float]:
        """The positions of this map's joints in a message; other joints are ignored.

        Raises ObservationError: non_finite (of a joint that is needed), bad_state.
        """
        try:
            values = np.asarray(positions, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ObservationError(FaultName.BAD_STATE, "position", f"not numbers: {error}") from error
        if values.shape != (len(names),):
            detail = f"shape {values.shape} for {len(names)} names"
            raise ObservationError(FaultName.BAD_STATE, "position", detail)
        told = dict(zip(names, values.tolist(), strict=True))
        part = {name: told[name] for name in self.names if name in told}
        for name in part if len(told) < len(names) else ():
            if list(names).count(name) > 1:
                raise ObservationError(FaultName.BAD_STATE, name, "named more than once")
        for name, value in part.items():
            if not math.isfinite(value):
                raise ObservationError(FaultName.NON_FINITE, name, "position is not finite")
        return part


class JointSlot(LatestSlot[StateArray]):
    """The newest position of each joint, from any driver, as one state [joints] once all have been received. It has the
    age and stamp of its oldest joint. Stamps are compared per joint: each driver has its own clock."""

    def __init__(
        self, name: str, joints: Sequence[str], age_limit_ms: float, ahead_limit_ms: float | None = None
    ) -> None:
        super().__init__(name, age_limit_ms, ahead_limit_ms)
        self._joints = tuple(joints)
        self._held: dict[str, Stamped[float]] = {}
        self._heard_joint_ns: dict[str, int] = {}  # joint -> receipt of its newest position, by the monotonic clock

    def put_part(
        self, part: Mapping[str, float], stamp_ns: int, receipt_mono_ns: int, latency_ns: int = 0
    ) -> Stamped[StateArray] | ObservationFault | None:
        """`put` for some of the joints; None while others are missing."""
        with self._lock:
            held_ns = [self._held[joint].stamp_ns for joint in part if joint in self._held]
            if fault := self._judged(max(held_ns, default=None), stamp_ns, latency_ns):
                return fault
            self._heard_joint_ns.update(dict.fromkeys(part, receipt_mono_ns))
            news = [joint for joint in part if joint not in self._held or self._held[joint].stamp_ns != stamp_ns]
            if not news:
                self._counts["repeated"] += 1
                return self._entry
            for joint in news:
                self._held[joint] = stamped_at(part[joint], stamp_ns, receipt_mono_ns, latency_ns)
            if len(self._held) == len(self._joints):
                held = [self._held[joint] for joint in self._joints]
                state = np.array([each.item for each in held])
                self._entry = Stamped(state, min(e.stamp_ns for e in held), min(e.mono_ns for e in held))
            return self._entry

    def latest(self, now_ns: int) -> Stamped[StateArray] | ObservationFault:
        """As in `LatestSlot`; a fault names the joint."""
        with self._lock:
            entry = self._entry
            held = dict(self._held)
            heard_ns = dict(self._heard_joint_ns)
        if not held:
            return super().latest(now_ns)
        for joint in self._joints:
            if joint not in held:
                return ObservationFault(FaultName.MISSING_JOINT, self.name, f"nothing received yet of {joint!r}")
        if entry is not None and now_ns - entry.mono_ns <= self._age_limit_ns:
            return entry
        oldest = min(self._joints, key=lambda joint: held[joint].mono_ns)
        fault = self._too_old(held[oldest], heard_ns[oldest], now_ns)
        return ObservationFault(fault.name, fault.source, f"{oldest!r} is {fault.detail}")

    def reset(self) -> None:
        """Forget every joint."""
        with self._lock:
            self._held.clear()
            self._heard_joint_ns.clear()
            self._entry = None
