"""Answers to an offered chunk or a requested transition: accepted, or refused with a named reason.

Refusals are ordinary results, not exceptions: late chunks are common. Their names are the keys of the
diagnostics counters, so they must not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class ChunkRefusal(str, Enum):
    """Why something was refused."""

    DISARMED = "disarmed"
    STOPPED = "stopped"
    SHAPE = "shape"
    OTHER_HOST = "other_host"
    OTHER_SESSION = "other_session"
    OLD_EPOCH = "old_epoch"
    OUT_OF_ORDER = "out_of_order"
    DUPLICATE = "duplicate"
    FUTURE_ORIGIN = "future_origin"
    UNKNOWN_ORIGIN = "unknown_origin"
    TOO_OLD = "too_old"
    PAST = "past"
    NON_FINITE = "non_finite"
    OVER_LIMIT = "over_limit"
    BAD_POSITION = "bad_position"


@dataclass(frozen=True)
class Accepted:
    """`index`: the chunk's first action that will be executed (None for a transition); `clipped`: number of
    values that were clipped to a limit; `detail`: a message for people."""

    index: int | None = None
    clipped: int = 0
    detail: str = ""
    ok: ClassVar[bool] = True


@dataclass(frozen=True)
class Rejected:
    """`reason` is the stable name, `detail` a message that explains it."""

    reason: ChunkRefusal
    detail: str
    ok: ClassVar[bool] = False
