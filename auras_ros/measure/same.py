"""Checks, before anything is timed, that the modes compute the same results (rule 7 of docs/pipeline.md).

Otherwise a schedule that is fast because it is wrong would win. Workers are driven one by one here, without threads or
a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import random_feed
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.policy import CausalPolicy

REQUESTS = 3
GPU_TOLERANCE = 1e-3  # of the action range, which is -1 to 1
CLEAR = 1e-3  # in standard deviations of a token's scores: below, rounding decides which token wins
CLEAR_BFLOAT16 = 0.1  # the same with 8 binary digits, rounded in each layer on the way


def check_equal(bench: Bench, generation: str) -> float:
    """Check that seq equals auras in one stage, offset 0, unbatched: bit for bit on a CPU; within GPU_TOLERANCE on a
    GPU, whose libraries may choose another algorithm for the same sizes. Returns the largest difference, as a share of
    the action range. Raises RuntimeError, naming the request."""
    feed, tolerance = random_feed(bench.policy, 1, REQUESTS), GPU_TOLERANCE if bench.device.type == "cuda" else 0.0
    seen = [feed(at) for at in range(1, REQUESTS + 1)]
    differences = _differences(bench, Plan(generation, "auras", batched=False), seen)
    for request, differs in enumerate(differences):
        if not differs <= tolerance:
            raise RuntimeError(
                f"request {request}: auras in one stage differs from seq by up to {differs:g} of the action range, "
                f"more than {tolerance:g}"
            )
    return max(differences)


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
    feed = random_feed(bench.policy, 1, 1)
    seen = [feed(at) for at in range(1, REQUESTS + stages + 1)]
    return max(_differences(bench, Plan(generation, "auras", pp_generation=stages), seen))


def _differences(bench: Bench, auras: Plan, seen: Sequence[Latched]) -> list[float]:
    """The largest difference of each request's chunk from seq's, as a share of the action range."""
    expected, got = _chunks(bench, auras.as_mode("seq"), seen[:REQUESTS]), _chunks(bench, auras, seen)
    return [float((expected[request] - got[request]).abs().max()) / 2 for request in range(REQUESTS)]


def _chunks(bench: Bench, plan: Plan, seen: Iterable[Latched]) -> dict[int, Tensor]:
    """Each request's actions [1, horizon, channels], with the next observation in every frame."""
    with closing(bench.make(plan)) as executor:
        emissions = [executor.frame(each, each.origin.mono_ns) for each in seen]
    return {emission.request: emission.actions for emission in emissions if emission is not None}


def constant_chunks(bench: Bench, plan: Plan, examples: Iterable[Latched]) -> Tensor:
    """A plan's chunk of each observation, which is constant until its request is done: [examples, horizon, channels],
    all with the noise of request 0. Raises RuntimeError if there is none."""
    with closing(bench.make(plan)) as executor:
        return torch.cat([_chunk_of(executor, seen) for seen in examples])


def _chunk_of(executor: Executor, seen: Latched) -> Tensor:
    executor.reset(first_request=0)
    for _ in range(executor.plan.latency_frames + 1):
        if emission := executor.frame(seen, seen.origin.mono_ns):
            return emission.actions.cpu()
    raise RuntimeError(f"{executor.plan}: no chunk after {executor.plan.latency_frames + 1} frames")


def check_same(bench: Bench, seq: Plan, auras: Plan) -> float:
    """Check that both compute the same (rule 7 of docs/pipeline.md).

    Diffusion: auras in one stage, unbatched, as in `check_equal`; returns the difference found. Autoregressive: both
    get one constant observation and must give the same chunk, unless a token wins by a margin so small that rounding
    decides it; returns 0. Raises RuntimeError.
    """
    if not isinstance(bench.policy, CausalPolicy):
        return check_equal(bench, seq.generation)
    seen = bench.feed(1)
    chunks = [constant_chunks(bench, plan, [seen]) for plan in (seq, auras)]
    differs = (chunks[0] != chunks[1]).flatten()
    if differs.any() and _clear(bench, seen, int(differs.nonzero()[0])):
        raise RuntimeError(f"{auras}: {int(differs.sum())} of {differs.numel()} numbers of a chunk differ from {seq}")
    return 0.0


def _clear(bench: Bench, seen: Latched, token: int) -> bool:
    """Whether all tokens of the observation's chunk up to this one win by more than rounding. After the first different
    token the rest may differ freely, so only tokens up to it are checked. Also true for policies without margins."""
    policy = bench.policy
    if not isinstance(policy, AutoregressivePolicy):
        return True
    context = policy.perceive(seen.images.to(bench.device), seen.state.to(bench.device))
    rounded = CLEAR if next(policy.parameters()).dtype == torch.float32 else CLEAR_BFLOAT16
    return float(policy.margins(context)[0, : token + 1].min()) > rounded
