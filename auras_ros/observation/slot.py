"""The newest item of a stream, never a queue: what a frame latches at its start.

Age is measured on the host's monotonic clock, so a jump of the wall clock or of the camera's clock does not make a
frozen stream look alive. A stamp too far ahead of the host's clock is refused: it would make everything that comes
later look old. A stream that is too old says why: nothing comes, or what comes is stamped wrongly. This module never
waits and never looks into an item.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .fault import FaultName, ObservationFault

T = TypeVar("T")

OTHER_CLOCK_NS = 10_000_000_000  # no camera and no network is so late: a stamp that far back is another clock's
RECEIPT = "let its driver stamp by this host's clock, or set `stamps: receipt`"


@dataclass(frozen=True, eq=False)
class Stamped(Generic[T]):
    """An item, its stamp in the stream's clock, the same instant on the host's monotonic clock, and how long after it
    the item came."""

    item: T
    stamp_ns: int
    mono_ns: int
    latency_ns: int = 0


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
        self._heard_ns = 0  # receipt of the newest item that was not refused, also of one that repeats a stamp
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
            self._heard_ns = receipt_mono_ns
            if held is not None and stamp_ns == held.stamp_ns:
                self._counts["repeated"] += 1
                return held
            self._entry = stamped_at(item, stamp_ns, receipt_mono_ns, latency_ns)
            return self._entry

    def _judged(self, held_ns: int | None, stamp_ns: int, latency_ns: int) -> ObservationFault | None:
        """Count the item; the fault of its stamp, given the newest stamp before it, or None. Call it under the lock."""
        self._counts["received"] += 1
        limit_ns = self._ahead_limit_ns
        if limit_ns is not None and -latency_ns > limit_ns:
            self._counts["future"] += 1
            detail = (  # with the remedy: it does not go away by itself
                f"stamped {-latency_ns / 1e6:.0f} ms ahead of this host's clock, at most {limit_ns / 1e6:g} ms are"
                " taken: synchronise the clock of the host that stamps it (chrony, PTP), raise stamp_ahead_ms, or set"
                " `stamps: receipt`"
            )
            return ObservationFault(FaultName.FUTURE, self.name, detail)
        if held_ns is None or stamp_ns >= held_ns:
            return None
        self._counts["backwards"] += 1
        ahead_ns = held_ns - (stamp_ns + latency_ns)
        if limit_ns is not None and ahead_ns > limit_ns:
            detail = f"the newest before it is {ahead_ns / 1e6:.0f} ms in the future: the clock was set back"
            return ObservationFault(FaultName.CLOCK_BACK, self.name, detail)
        if stamp_ns == 0:
            return self._unstamped()
        back_ms = (held_ns - stamp_ns) / 1e6
        return ObservationFault(FaultName.BACKWARDS, self.name, f"stamp went back by {back_ms:.3f} ms")

    def latest(self, now_ns: int) -> Stamped[T] | ObservationFault:
        """The newest entry, or a fault: `missing`; `stale`; or, where items come that are too old by their stamps
        alone, `unstamped` or `other_clock`. `now_ns` is on the monotonic clock."""
        with self._lock:
            held = self._entry
            heard_ns = self._heard_ns
        if held is None:
            return ObservationFault(FaultName.MISSING, self.name, "nothing received yet")
        if now_ns - held.mono_ns > self._age_limit_ns:
            return self._too_old(held, heard_ns, now_ns)
        return held

    def _too_old(self, held: Stamped[Any], heard_ns: int, now_ns: int) -> ObservationFault:
        """Why the newest entry is too old. heard_ns: when the newest item was received, by the monotonic clock."""
        limit_ms = self._age_limit_ns / 1e6
        old = f"{(now_ns - held.mono_ns) / 1e6:.1f} ms old, limit {limit_ms:g} ms"
        if now_ns - heard_ns > self._age_limit_ns:
            return ObservationFault(FaultName.STALE, self.name, old)
        if held.stamp_ns == 0:
            return self._unstamped()
        if held.latency_ns > OTHER_CLOCK_NS:
            behind = f"stamped {held.latency_ns / 1e9:.0f} s behind this host's clock, so by another one"
            detail = f"{behind} (a device's own, the time since boot): {RECEIPT}"
            return ObservationFault(FaultName.OTHER_CLOCK, self.name, detail)
        if held.latency_ns > self._age_limit_ns:
            late = f"{held.latency_ns / 1e6:.0f} ms old by its stamp when it comes, limit {limit_ms:g} ms"
            cause = "a slow camera or network, or a clock that lags (chrony, PTP)"
            return ObservationFault(FaultName.STALE, self.name, f"{late}: {cause}")
        repeats = "it still comes, always with the same stamp: the driver repeats it or does not renew header.stamp"
        return ObservationFault(FaultName.STALE, self.name, f"{old}; {repeats}")

    def _unstamped(self) -> ObservationFault:
        return ObservationFault(FaultName.UNSTAMPED, self.name, f"not stamped (header.stamp is 0): {RECEIPT}")

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


def stamped_at(item: T, stamp_ns: int, receipt_mono_ns: int, latency_ns: int) -> Stamped[T]:
    """A stamp from the future counts as now."""
    latency_ns = max(0, latency_ns)
    return Stamped(item, stamp_ns, receipt_mono_ns - latency_ns, latency_ns)
