"""The outputs of the action stream: one tick's command, and the checked rest of a horizon. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from .chunk import Provenance
from .contract import FloatArray
from .safety import SafetyState


@dataclass(frozen=True, eq=False, slots=True)
class Command:
    """One tick's command. `values` [channels] float64 in contract order, NaN if `publish` is False.

    `source`: chunk, blend, ensemble, hold, stop or none. `index` is the policy step, `age_ns` the age of its
    origin, `limited` the channels that a limit changed; `provenance` is the chunk's, None for holds. For an
    ensemble, index and provenance are the newest chunk's and the age is the oldest's.
    """

    values: FloatArray
    publish: bool
    state: SafetyState
    source: str
    index: int | None = None
    age_ns: int | None = None
    provenance: Provenance | None = None
    limited: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Horizon:
    """The rest of the active chunk: `values` [steps, channels], one policy step apart, starting at the chunk's
    step `index`, all within the limits of values, rates and accelerations."""

    index: int
    values: FloatArray
    provenance: Provenance
