"""What Nova is compared with (V-A7): other implementations of the same protocol, with settings to be tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from auras_ros.engine.scheduler import Dispatch, EngineState, decode_all, next_image, prefill_up_to


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
    """Chunked prefill (Agrawal et al. 2024): up to `budget` tokens in one forward, one of each request that decodes and
    the next ones of a prompt. Vision goes before decode alone."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def next(self, state: EngineState) -> Dispatch | None:
        if state.running:
            return None
        return self._hybrid(state) or next_image(state) or decode_all(state)

    def _hybrid(self, state: EngineState) -> Dispatch | None:
        decode = decode_all(state)
        if decode is None:
            return prefill_up_to(state, self._budget, chunked=True)
        chunk = prefill_up_to(state, max(self._budget - len(decode.requests), 1), chunked=True)
        if chunk is None:
            return None
        return replace(chunk, requests=decode.requests + chunk.requests, counts=decode.counts + chunk.counts)


@dataclass(frozen=True)
class StaticUnits:
    """The same split whatever waits; None: both stages on the whole device, without a partition (Multi-Stream)."""

    vision: int | None = None
    prefill: int | None = None

    def beside_vision(self, pending: int, decoding: int) -> int | None:
        return self.vision

    def beside_prefill(self, pending: int, decoding: int) -> int | None:
        return self.prefill
