"""Several cameras, one instant: their stamps must be close together, and the oldest is the origin.

This module never waits for a better match: it uses the newest item of each stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .fault import FaultName, ObservationFault
from .slot import Stamped


def synchronize(entries: Mapping[str, Stamped[Any]], tolerance_ns: int) -> Stamped[Any] | ObservationFault:
    """The entry with the oldest stamp, which defines action 0; a fault unless all stamps lie within `tolerance_ns`.
    `entries` by stream name, not empty."""
    oldest = min(entries, key=lambda name: entries[name].stamp_ns)
    newest = max(entries, key=lambda name: entries[name].stamp_ns)
    skew_ns = entries[newest].stamp_ns - entries[oldest].stamp_ns
    if skew_ns > tolerance_ns:
        detail = f"{skew_ns / 1e6:.1f} ms behind {newest!r}, tolerance {tolerance_ns / 1e6:g} ms"
        return ObservationFault(FaultName.SKEW, oldest, detail)
    return entries[oldest]
