"""Rates of several plans of one policy in interleaved rounds, after checking that they compute the same.

`pipeline_rate` measures a window and `pipeline_rounds` interleaves windows. This module adds, for the figures: plans of
any family, each in its best form on the same cores, and its ratio to seq within every round.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from auras_ros.bench.cores import threads_tried
from auras_ros.bench.job import Job, add_job_options
from auras_ros.bench.kept import OVER, OverError, disturb
from auras_ros.bench.options import Options, kind_of
from auras_ros.bench.pipeline_checks import check_equal
from auras_ros.bench.pipeline_rate import Bench
from auras_ros.bench.pipeline_rounds import Rates, Rounds
from auras_ros.bench.pipeline_summary import disturbed, ratio
from auras_ros.bench.pipeline_variants import Variant, forms
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.policy import CausalPolicy
from auras_ros.policies.precision import runtime_dtype

CLEAR = 1e-3  # in standard deviations of a token's scores: below this margin rounding decides which token wins
CLEAR_BFLOAT16 = 0.1  # the same for bfloat16, whose 8 binary digits are rounded in each layer
PUBLISHED = torch.bfloat16  # dtype of the published autoregressive checkpoints
MEMORY = Path("/proc/meminfo")


def add_measured(options: Options, minutes: float | None = 10.0) -> None:
    """The options of every measured figure, without --seed; and without --minutes if minutes is None."""
    add_job_options(options, minutes=minutes)
    options.add_argument("--steps", type=int, default=100, help="denoising steps of a chunk (100)")


def room(device: str) -> dict[str, Any]:
    """`build`'s arguments `device` and `free` (bytes of free memory there). Frees unused memory first."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU
    kind = kind_of(device)
    if kind == "cuda":
        return {"device": kind, "free": int(torch.cuda.mem_get_info()[0])}
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return {"device": kind, "free": free[0] if free else 2**62}


def room_as_run(device: str) -> dict[str, Any]:
    """The same, with the dtype in which autoregressive policies run there."""
    return {**room(device), "dtype": runtime_dtype("auto", kind_of(device), PUBLISHED)}


@dataclass(frozen=True)
class Measured:
    """The results of a bench's rounds. best: the form in which each plan ran, without those that failed. difference:
    the result of `check_same`."""

    rates: Rates
    best: Mapping[Plan, Variant]
    bench: Bench
    said: Mapping[Variant, str]  # notes on disturbed rates
    difference: float = 0.0

    def __contains__(self, plan: Plan) -> bool:
        return self.best.get(plan) in self.rates

    def slowest_hz(self, plan: Plan) -> float:
        return min(self.rates[self.best[plan]])

    def figures(self, plan: Plan, seq: Plan) -> dict[str, Any]:
        """rate_hz: median; speedup over seq within each round: median and quartiles. cores: the same for both plans."""
        form = self.best[plan]
        low, middle, high = ratio(self.rates, form, self.best[seq])
        found, stale_ms = self.rates[form], self.bench.staleness_ms.get(form)
        return {
            "plan": str(plan),
            "cores": self.bench.cores,
            "threads": form.threads,
            "rate_hz": median(found),
            "speedup": middle,
            "speedup_low": low,
            "speedup_high": high,
            "staleness_ms": median(stale_ms) if stale_ms else None,
            "rounds": len(found),
            "disturbed": form in self.said,
        }


def measure(bench: Bench, job: Job, plans: Sequence[Plan]) -> Measured:
    """Check the first plan, seq, against the second, then measure all; the report names those that fail. Raises
    RuntimeError if the two differ or seq gives no rate, OverError if seq had no time to give one."""
    difference = check_same(bench, plans[0], plans[1]) if len(plans) > 1 else 0.0
    rounds = Rounds(bench, job.what, job.options, job.ends, job.say)
    tried = threads_tried(bench.cores, bench.device.type)
    kinds = {str(plan): forms(plan, tried, bench.cores) for plan in plans}
    best = {plan: kinds[str(plan)][0] for plan in plans}
    if any(len(each) > 1 for each in kinds.values()):
        _, found = rounds.trial(kinds)
        best = {plan: found[str(plan)] for plan in plans if str(plan) in found}
    rates: Rates = {}
    try:
        for so_far in rounds.contest(list(best.values())):
            rates = so_far
    finally:
        rounds.tell(job.report)
    seq = best.get(plans[0])
    if OVER in {rounds.failed.get(form) for form in kinds[str(plans[0])]}:
        raise OverError
    if seq not in rates:
        raise RuntimeError(f"{plans[0]} gave no rate: there is nothing to compare with")
    said = disturbed(rates, seq)
    disturb(job.report, job.what, said.values())
    return Measured(rates, best, bench, said, difference)


def check_same(bench: Bench, seq: Plan, auras: Plan) -> float:
    """Check that both compute the same (rule 7 of docs/pipeline.md).

    Diffusion: auras in one stage, unbatched, as in `check_equal`; returns the difference found. Autoregressive: both
    get one constant observation and must give the same chunk, unless a token wins by a margin so small that rounding
    decides it; returns 0. Raises RuntimeError.
    """
    if not isinstance(bench.policy, CausalPolicy):
        return check_equal(bench, seq.generation)
    seen, chunks = bench.feed(1), []
    for plan in (seq, auras):
        executor = bench.make(plan)
        (worker,) = executor.workers
        emission, frames = None, 0
        while emission is None and frames < plan.latency_frames + 1:
            worker.begin(seen, seen.origin.mono_ns)
            worker.run()
            emission, frames = worker.end(seen.origin.mono_ns), frames + 1
        executor.close()
        if emission is None:
            raise RuntimeError(f"{plan}: no chunk after {frames} frames")
        chunks.append(emission.actions)
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


def marked(row: Mapping[str, Any]) -> str:
    """Mark rows measured on a busy machine."""
    return "disturbed" if row["disturbed"] else ""
