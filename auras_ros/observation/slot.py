"""The newest item of a stream, never a queue: what a frame latches at its start.

Age is measured on the host's monotonic clock, so a jump of the wall clock or of the camera's clock does not make a
frozen stream look alive. A stamp too far ahead of the host's clock is refused: it would make everything that comes
later look old. This module never waits and never looks into an item.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

from .fault import FaultName, ObservationFault

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Stamped(Generic[T]):
    """An item, its stamp in the stream's clock, and the same instant on the host's monotonic clock."""

    item: T
    stamp_ns: int
    mono_ns: int


class LatestSlot(Generic[T]):
    """Holds the newest item of one stream. Thread-safe.

    A repeated stamp is the same observation (a camera that repeats one image): it neither replaces the item nor makes
    it younger. A stamp that goes back is refused until `reset`.

    ahead_limit_ms: how far ahead of the host's clock a stamp may be; None: any.
    """

    def __init__(self, name: str, age_limit_ms: float, ahead_limit_ms: float | None = None) -> None:
        if not age_limit_ms > 0:
            raise ValueError(f"slot {name!r}: age_limit_ms: {age_limit_ms!r} is not above zero")
        self.name = name
        self._age_limit_ns = round(age_limit_ms * 1e6)
        self._ahead_limit_ns = None if ahead_limit_ms is None else round(ahead_limit_ms * 1e6)
        self._lock = threading.Lock()
        self._entry: Stamped[T] | None = None
        self._counts = {"received": 0, "repeated": 0, "backwards": 0, "future": 0}

    def put(self, item: T, stamp_ns: int, receipt_mono_ns: int, latency_ns: int = 0) -> Stamped[T] | ObservationFault:
        """Store an item that was received at `receipt_mono_ns`, `latency_ns` after its stamp (as far as the node can
        tell). A negative latency means a stamp from the future: it counts as zero within the limit and is refused
        beyond. Returns the entry that the slot holds, or the fault. `clock_back`: the stored stamp was valid when it
        came and is in the future now, so the host's clock was set back; the caller decides whether to `reset`."""
        with self._lock:
            held = self._entry
            if fault := self._judged(None if held is None else held.stamp_ns, stamp_ns, latency_ns):
                return fault
            if held is not None and stamp_ns == held.stamp_ns:
                self._counts["repeated"] += 1
                return held
            self._entry = Stamped(item, stamp_ns, receipt_mono_ns - max(0, latency_ns))
            return self._entry

    def _judged(self, held_ns: int | None, stamp_ns: int, latency_ns: int) -> ObservationFault | None:
        """Count the item; the fault of its stamp, given the newest stamp before it, or None. Call it under the lock."""
        self._counts["received"] += 1
        limit_ns = self._ahead_limit_ns
        if limit_ns is not None and -latency_ns > limit_ns:
            self._counts["future"] += 1
            detail = (  # with the remedy: it does not go away by itself
                f"stamped {-latency_ns / 1e6:.0f} ms ahead of this host's clock, at most {limit_ns / 1e6:g} ms are"
                " taken: synchronise the clock of the host that stamps it (chrony, PTP), or raise stamp_ahead_ms"
            )
            return ObservationFault(FaultName.FUTURE, self.name, detail)
        if held_ns is None or stamp_ns >= held_ns:
            return None
        self._counts["backwards"] += 1
        ahead_ns = held_ns - (stamp_ns + latency_ns)
        if limit_ns is not None and ahead_ns > limit_ns:
            detail = f"the newest before it is {ahead_ns / 1e6:.0f} ms in the future: the clock was set back"
            return ObservationFault(FaultName.CLOCK_BACK, self.name, detail)
        back_ms = (held_ns - stamp_ns) / 1e6
        return ObservationFault(FaultName.BACKWARDS, self.name, f"stamp went back by {back_ms:.3f} ms")

    def latest(self, now_ns: int) -> Stamped[T] | ObservationFault:
        """The newest entry, or the fault `missing` or `stale`. `now_ns` is on the monotonic clock."""
        with self._lock:
            held = self._entry
        if held is None:
            return ObservationFault(FaultName.MISSING, self.name, "nothing received yet")
        age_ns = now_ns - held.mono_ns
        if age_ns > self._age_limit_ns:
            limit_ms = self._age_limit_ns / 1e6
            return ObservationFault(FaultName.STALE, self.name, f"{age_ns / 1e6:.1f} ms old, limit {limit_ms:g} ms")
        return held

    def item(self) -> T | None:
        """The newest item, however old it is."""
        with self._lock:
            return None if self._entry is None else self._entry.item

    def reset(self) -> None:
        """Forget the item and its stamp: the stream may start again."""
        with self._lock:
            self._entry = None

    def counters(self) -> dict[str, int]:
        """Totals: received, repeated, backwards (including a clock that was set back), future."""
        with self._lock:
            return dict(self._counts)
