"""What Nova is compared with (V-A7): other implementations of the same protocol, with settings to be tuned."""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros.engine.scheduler import Dispatch, EngineState, decode_all, joined_prefill, next_image, prefill_up_to


class PfLimitScheduler:
    """Stages take turns: prefill, then vision, and decode when neither waits or more than `threshold` requests wait
    for it."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold

    def next(self, state: EngineState) -> Dispatch | None:
        if state.running:
            return None
        decode = decode_all(state)
        if decode is not None and len(decode.requests) > self._threshold:
            return decode
        return prefill_up_to(state, 1, chunked=False) or next_image(state) or decode


class ChunkScheduler:
    """Chunked prefill (`joined_prefill`). Vision goes before decode alone."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def next(self, state: EngineState) -> Dispatch | None:
        if state.running:
            return None
        return joined_prefill(state, self._budget) or next_image(state) or decode_all(state)


@dataclass(frozen=True)
class StaticUnits:
    """The same split whatever waits; None: both stages on the whole device, without a partition (Multi-Stream)."""

    vision: int | None = None
    prefill: int | None = None

    def beside_vision(self, pending: int, decoding: int) -> int | None:
        return self.vision

    def beside_prefill(self, pending: int, decoding: int) -> int | None:
        return self.prefill
