"""The newest item of a stream, never a queue: what a frame latches at its start.

Age is counted on the host's monotonic clock, so a jump of the wall clock or of the camera's does not make a
frozen stream look alive. This module never waits and never looks into an item.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

from .fault import Fault, FaultName

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Stamped(Generic[T]):
    """An item, its stamp in the stream's clock, and the same instant on the host's monotonic clock."""

    item: T
    stamp_ns: int
    mono_ns: int


class LatestSlot(Generic[T]):
    """Holds the newest item of one stream. Thread-safe.

    A stamp that comes again is the same observation again (a camera that repeats one frame): it neither
    replaces the item nor makes it younger. A stamp that goes back is refused until `reset`.
    """

    def __init__(self, name: str, age_limit_ms: float) -> None:
        if not age_limit_ms > 0:
            raise ValueError(f"slot {name!r}: age_limit_ms: {age_limit_ms!r} is not above zero")
        self.name = name
        self._age_limit_ns = round(age_limit_ms * 1e6)
        self._lock = threading.Lock()
        self._entry: Stamped[T] | None = None
        self._counts = {"received": 0, "repeated": 0, "backwards": 0}

    def put(self, item: T, stamp_ns: int, receipt_mono_ns: int, latency_ns: int = 0) -> Stamped[T] | Fault:
        """Take an item that was received at `receipt_mono_ns`, `latency_ns` after its stamp (as far as the
        node can tell; a negative one counts as zero). Returns the entry that the slot holds, or the fault.
        """
        with self._lock:
            self._counts["received"] += 1
            held = self._entry
            if held is not None and stamp_ns == held.stamp_ns:
                self._counts["repeated"] += 1
                return held
            if held is not None and stamp_ns < held.stamp_ns:
                self._counts["backwards"] += 1
                back_ms = (held.stamp_ns - stamp_ns) / 1e6
                return Fault(FaultName.BACKWARDS, self.name, f"stamp went back by {back_ms:.3f} ms")
            self._entry = Stamped(item, stamp_ns, receipt_mono_ns - max(0, latency_ns))
            return self._entry

    def latest(self, now_ns: int) -> Stamped[T] | Fault:
        """The newest entry, or the fault `missing` or `stale`. `now_ns` is on the monotonic clock."""
        with self._lock:
            held = self._entry
        if held is None:
            return Fault(FaultName.MISSING, self.name, "nothing received yet")
        age_ns = now_ns - held.mono_ns
        if age_ns > self._age_limit_ns:
            limit_ms = self._age_limit_ns / 1e6
            return Fault(FaultName.STALE, self.name, f"{age_ns / 1e6:.1f} ms old, limit {limit_ms:g} ms")
        return held

    def reset(self) -> None:
        """Forget the item and its stamp: the stream may start anew."""
        with self._lock:
            self._entry = None

    def counters(self) -> dict[str, int]:
        """Totals: received, repeated, backwards."""
        with self._lock:
            return dict(self._counts)
