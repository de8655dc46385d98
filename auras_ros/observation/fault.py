"""Named faults of the inputs: every reason why there is no observation has a name.

Names are stable: they are the keys of the diagnostics counters, and operators search for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FaultName(str, Enum):
    """What is wrong with a message, a stream or an observation."""

    MISSING = "missing"
    STALE = "stale"
    BACKWARDS = "backwards"
    FUTURE = "future"
    CLOCK_BACK = "clock_back"
    UNSTAMPED = "unstamped"
    OTHER_CLOCK = "other_clock"
    SKEW = "skew"
    UNKNOWN_SOURCE = "unknown_source"
    BAD_SIZE = "bad_size"
    BAD_ENCODING = "bad_encoding"
    BAD_STEP = "bad_step"
    BAD_DATA = "bad_data"
    TOO_LARGE = "too_large"
    MISSING_JOINT = "missing_joint"
    BAD_STATE = "bad_state"
    NON_FINITE = "non_finite"


@dataclass(frozen=True)
class ObservationFault:
    """`source` is the camera, joint or field; `detail` says what was wrong."""

    name: FaultName
    source: str
    detail: str

    def __str__(self) -> str:
        return f"{self.source}: {self.name.value}: {self.detail}"


class ObservationError(ValueError):
    """A message that is refused; it carries the fault."""

    def __init__(self, name: FaultName, source: str, detail: str) -> None:
        self.fault = ObservationFault(name, source, detail)
        super().__init__(str(self.fault))
