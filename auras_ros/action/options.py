"""The options of an action stream, checked once where they enter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .contract import Contract, ContractError
from .ensemble import DEFAULT_ENSEMBLE_DECAY
from .limits import DEFAULT_CLIP_TOLERANCE

MAX_RECORD_TICKS = 100_000  # bounds the memory of the executed record
SEAMS = ("blend", "switch", "ensemble")


@dataclass(frozen=True)
class ActionStreamOptions:
    """`tick_ns`: the period between ticks. `seam`, how a chunk follows another: "blend" fades over `blend_ms`,
    "ensemble" averages all chunks that cover a tick with `ensemble_decay` (see `ensemble`), "switch" does
    neither. `hold_after_ms`: after the last valid action the last command stays active this long
    (increments: none), then the hold policies apply. `max_chunk_age_ms`: no action is executed if its
    chunk's origin is older. `clip_tolerance`: see `limits`.
    """

    tick_ns: int
    blend_ms: float = 0.0
    hold_after_ms: float = 0.0
    max_chunk_age_ms: float = 2000.0
    seam: str = "blend"
    ensemble_decay: float = DEFAULT_ENSEMBLE_DECAY
    clip_tolerance: float = DEFAULT_CLIP_TOLERANCE

    def check(self, contract: Contract) -> None:
        """Raise ContractError unless all options are valid, also for this contract's policy step."""
        if not isinstance(self.tick_ns, int) or not 1 <= self.tick_ns <= contract.dt_ns:
            raise ContractError(f"stream: tick_ns: {self.tick_ns!r} is not in 1..dt ({contract.dt_ns})")
        for name in ("hold_after_ms", "max_chunk_age_ms", "blend_ms"):
            value_ms = getattr(self, name)
            if not np.isfinite(value_ms) or value_ms < 0:
                raise ContractError(f"stream: {name}: {value_ms!r} is not a time of zero or more")
        if self.blend_ms > self.max_chunk_age_ms:
            raise ContractError(f"stream: blend_ms: {self.blend_ms} is longer than max_chunk_age_ms")
        if self.max_age_ns // self.tick_ns > MAX_RECORD_TICKS:
            raise ContractError(f"stream: max_chunk_age_ms: more than {MAX_RECORD_TICKS} ticks")
        if self.seam not in SEAMS:
            raise ContractError(f"stream: seam: {self.seam!r} is not one of {', '.join(SEAMS)}")
        if not np.isfinite(self.ensemble_decay) or self.ensemble_decay < 0:
            raise ContractError(f"stream: ensemble_decay: {self.ensemble_decay!r} is not zero or more")

    @property
    def hold_after_ns(self) -> int:
        return round(self.hold_after_ms * 1e6)

    @property
    def max_age_ns(self) -> int:
        return round(self.max_chunk_age_ms * 1e6)

    @property
    def blend_ticks(self) -> int:
        """Length of a seam; 0 unless chunks are blended."""
        return round(self.blend_ms * 1e6) // self.tick_ns if self.seam == "blend" else 0
