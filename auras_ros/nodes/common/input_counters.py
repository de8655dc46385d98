"""Counters of accepted and refused messages by topic, for diagnostics, so that a stale camera is explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from auras_ros.observation import ObservationFault
from auras_ros.topic_names import JOINT_STATES

STATE = JOINT_STATES  # its name in diagnostics, whatever its topic
STATE_SLOT = "state"  # its name in faults
SILENT_NS = 1_000_000_000


class InputCounters:
    """Used in the executor's thread; `cause` in any."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._sources = tuple(sources)
        self._taken_ns: dict[str, int] = {}  # when the last message was accepted
        self._refused: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}  # why the newest message was refused, until one is accepted

    def taken(self, source: str, now_ns: int) -> None:
        self._taken_ns[source] = now_ns
        self._reasons.pop(source, None)

    def refused(self, source: str, fault: ObservationFault) -> None:
        self._refused[source] += 1
        self._reasons[source] = f"{fault.name.value}: {fault.detail}"

    def cause(self, fault: ObservationFault) -> str:
        """Why a stream has nothing new, if its messages are refused; else empty."""
        reason = self._reasons.get(STATE if fault.source == STATE_SLOT else fault.source)
        return f"; its newest message was refused: {reason}" if reason else ""

    def is_silent(self, fault: ObservationFault, now_ns: int) -> bool:
        """Whether no message of the fault's stream was accepted for a second."""
        taken_ns = self._taken_ns.get(STATE if fault.source == STATE_SLOT else fault.source)
        return taken_ns is None or now_ns - taken_ns > SILENT_NS

    def values(self, now_ns: int) -> dict[str, object]:
        """For each source: the age of its last accepted message, the number of refused ones, and the newest reason."""
        values: dict[str, object] = {}
        for source in self._sources:
            taken_ns = self._taken_ns.get(source)
            values[f"{source} age_ms"] = "never" if taken_ns is None else f"{(now_ns - taken_ns) / 1e6:.0f}"
            values[f"{source} refused"] = self._refused[source]
            if source in self._reasons:
                values[f"{source} refused_for"] = self._reasons[source]
        return values
