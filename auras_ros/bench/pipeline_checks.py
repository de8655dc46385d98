"""Checks, before anything is timed, that the modes compute the same results (rule 7 of docs/pipeline.md).

Otherwise a schedule that is fast because it is wrong would win. Workers are driven one by one here, without threads or
a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from auras_ros.bench.feed import Feed
from auras_ros.bench.pipeline_rate import Bench
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched

REQUESTS = 3
GPU_TOLERANCE = 1e-3  # of the action range, which is -1 to 1


def check_equal(bench: Bench, generation: str) -> float:
    """Check that seq equals auras in one stage, offset 0, unbatched: bit for bit on a CPU; within GPU_TOLERANCE on a
    GPU, whose libraries may choose another algorithm for the same sizes. Returns the largest difference, as a share of
    the action range. Raises RuntimeError, naming the request."""
    feed = _examples(bench, REQUESTS)
    seen = [feed(at) for at in range(1, REQUESTS + 1)]
    expected = _chunks(bench, Plan(generation, "seq"), seen)
    got = _chunks(bench, Plan(generation, "auras", batched=False), seen)
    tolerance, worst = GPU_TOLERANCE if bench.device.type == "cuda" else 0.0, 0.0
    for request in range(REQUESTS):
        differs = float((expected[request] - got[request]).abs().max()) / 2
        if not differs <= tolerance:
            raise RuntimeError(
                f"request {request}: auras in one stage differs from seq by up to {differs:g} of the action range, "
                f"more than {tolerance:g}"
            )
        worst = max(worst, differs)
    return worst


def equal_fields(difference: float) -> dict[str, Any]:
    """The fields of a row for the result of `check_equal`."""
    return {"bit_equal": int(difference == 0), "one_stage_difference": difference}


def equal_words(row: Mapping[str, Any]) -> str:
    """How equal the chunks of seq and of auras in one stage are, as text."""
    if row["bit_equal"]:
        return "bit for bit"
    return f"within {row['one_stage_difference']:.2g} of the action range (allowed: {GPU_TOLERANCE:g})"


def batched_difference(bench: Bench, generation: str, stages: int) -> float:
    """The largest difference of a chunk from seq's, as a share of the action range, when `stages` rows are one batch.

    Every frame sees the same picture, so that the context does not change during a request; the only difference is the
    rounding of another batch size.
    """
    feed = _examples(bench, 1)
    seen = [feed(at) for at in range(1, REQUESTS + stages + 1)]
    expected = _chunks(bench, Plan(generation, "seq"), seen[:REQUESTS])
    got = _chunks(bench, Plan(generation, "auras", pp_generation=stages), seen)
    return max(float((expected[request] - got[request]).abs().max()) / 2 for request in range(REQUESTS))


def _examples(bench: Bench, count: int) -> Feed:
    random = torch.Generator().manual_seed(1)
    return Feed([bench.policy.example(1, random) for _ in range(count)])


def _chunks(bench: Bench, plan: Plan, seen: Iterable[Latched]) -> dict[int, Tensor]:
    """Each request's actions [1, horizon, channels], with the next observation in every frame."""
    executor = bench.make(plan)
    try:
        return dict(_drive(executor, seen))
    finally:
        executor.close()


def _drive(executor: Executor, observations: Iterable[Latched]) -> Iterable[tuple[int, Tensor]]:
    (worker,) = executor.workers
    for seen in observations:
        worker.begin(seen, seen.origin.mono_ns)
        worker.run()
        emission = worker.end(seen.origin.mono_ns)
        if emission is not None:
            yield emission.request, emission.actions
