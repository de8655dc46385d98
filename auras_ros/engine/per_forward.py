"""Each forward of the decoder has the merged adapter's weights or the base model's, whichever takes fewer products.

Beyond VaLoRA, whose mode is one for all requests until it is changed, at a cost: the base model's weights are in memory
anyway, as what the sums are computed from, so the choice costs nothing, and nobody has to wait for it. Only the
computation of another adapter's weights does. That is worth it once it would have paid for itself since the last one:
several times over if it takes the place of others.
"""

from __future__ import annotations

from dataclasses import replace

from auras_ros.engine.scheduler import DECODER, Dispatch, EngineState, LoraState, StageScheduler, products
from auras_ros.lora.slots import Resident

PER_FORWARD = "per-forward"
TIMES = 8  # so that a run of requests for another adapter does not change them


class PerForward:
    """Around a scheduler that chooses stage, requests and split."""

    def __init__(self, inner: StageScheduler) -> None:
        self._inner = inner

    def next(self, state: EngineState) -> Dispatch | None:
        dispatch = self._inner.next(state)
        if dispatch is None or dispatch.stage == "vision":
            return dispatch
        if any(stage in state.running for stage in DECODER):  # two that run side by side have the same weights
            return replace(dispatch, merged=state.lora.merged)
        return replace(dispatch, merged=_merged(dispatch, state.lora))


def _merged(dispatch: Dispatch, lora: LoraState) -> Resident | None:
    """Of equally few products the base model's weights."""
    present, times = {each.resident for each in dispatch.requests} - {None}, TIMES if lora.full else 1
    ready = [None, *(each for each in present if each in lora.summed)]  # those of the batch: where they are now
    late = [
        each
        for each in present.difference(lora.summed)
        if each is not None and lora.missed_ns.get(each.digest, 0.0) > times * lora.switch_ns
    ]
    return min([*ready, *late], key=lambda each: products(dispatch, each))
