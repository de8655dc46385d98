"""Nova's scheduler (III-D, algorithm 1): decode beside vision or prefill, each on its part of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from auras_ros.engine.scheduler import Dispatch, EngineState, decode_all, next_image, prefill_up_to


class DecodeUnits(Protocol):
    """Units of the device for decode beside another stage, by how many requests are pending and how many decode:
    `planner.SplitPlan`, `marginal.MarginalUnits`. None: the whole device for both."""

    def beside_vision(self, pending: int, decoding: int) -> int | None: ...

    def beside_prefill(self, pending: int, decoding: int) -> int | None: ...


class NovaScheduler:
    """First come, first served within a stage. Everything that decodes does so in one batch, at once. Prefill goes
    before vision, one request each, and never beside it. Before each of these the split is calibrated to the load, and
    a decode that runs on units which it will take ends first: so no decode ever shares its part. Decode takes the part
    that is left, and the whole device while it is alone."""

    def __init__(self, units: DecodeUnits) -> None:
        self._units = units

    def next(self, state: EngineState) -> Dispatch | None:
        front = state.running.get("prefill") or state.running.get("vision")
        starting = None if front is not None else self._front(state)
        beside = front or starting
        decode = decode_all(state, None if beside is None else beside.split)
        return decode or (None if _taken(state, starting) else starting)

    def _front(self, state: EngineState) -> Dispatch | None:
        """The next prefill or image, on its part of the device if something decodes."""
        dispatch = prefill_up_to(state, 1, chunked=False) or next_image(state)
        decoding = len(state.allowed("decode"))
        if dispatch is None or not decoding:
            return dispatch
        units = self._units.beside_prefill if dispatch.stage == "prefill" else self._units.beside_vision
        return replace(dispatch, split=units(state.pending, decoding))


def _taken(state: EngineState, starting: Dispatch | None) -> bool:
    """Whether a decode runs on some of the units of the part on which this one would start."""
    decode = state.running.get("decode")
    if decode is None or starting is None or starting.split is None:
        return False
    return decode.split is None or decode.split > starting.split
