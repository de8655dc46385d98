"""Rates of several plans of one policy in interleaved rounds, after checking that they compute the same.

`pipeline_rate` measures a window and `pipeline` interleaves them; here is what the figures add: plans of any family,
and each plan's ratio to seq within every round, so that what slows a round slows both.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from auras_ros.bench.figures.policies import build, is_causal, names
from auras_ros.bench.figures.show import aligned
from auras_ros.bench.options import Options, add_device, add_windows, check_least, kind_of
from auras_ros.bench.pipeline import contest
from auras_ros.bench.pipeline_checks import check_equal
from auras_ros.bench.pipeline_rate import Bench, Length
from auras_ros.bench.pipeline_summary import ratio
from auras_ros.bench.pipeline_variants import Variant
from auras_ros.evaluate.report import Report
from auras_ros.pipeline.modes import Policy, check_plan
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.request import Latched
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.policy import CausalPolicy

Progress = Callable[[str], None]
Rates = Mapping[Variant, Sequence[float]]
CLEAR = 1e-3  # standard deviations of a token's scores: below, rounding decides which token wins
CLEAR_BFLOAT16 = 0.1  # the same with 8 binary digits, rounded in each layer on the way
TYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}  # as token-writing policies are published and run on GPUs
MEMORY = Path("/proc/meminfo")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every measured figure takes."""
    _add_measured(parser)
    parser.add_argument("--seed", type=int, default=0, help="of observations, noise and the order of rounds (0)")


def _add_measured(options: Options) -> None:
    add_device(options)
    options.add_argument("--steps", type=int, default=100, help="denoising steps of a chunk (100)")
    add_windows(options)


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the process with status 2 for numbers that cannot be."""
    check_least(parser, options, rounds=1, chunks=1, steps=2, seed=0)


def room(device: str) -> dict[str, Any]:
    """Where a policy is built, and how many bytes are free there: `build`'s arguments. Gives back what is unused."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing where there is no GPU
    kind = kind_of(device)
    if kind == "cuda":
        return {"device": kind, "free": int(torch.cuda.mem_get_info()[0])}
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return {"device": kind, "free": free[0] if free else 2**62}


def room_as_run(device: str) -> dict[str, Any]:
    """The same, and of the type that such policies are run in there."""
    return {**room(device), "dtype": TYPES[kind_of(device)]}


def measure(bench: Bench, name: str, plans: Sequence[Plan], options: argparse.Namespace, progress: Progress) -> Rates:
    """The first plan is checked against the second, then all are compared. Raises RuntimeError where they differ."""
    if len(plans) > 1:
        check_same(bench, plans[0], plans[1])
    options.length = Length(options.chunks, options.seconds)
    rates: Rates = {}
    for so_far in contest(bench, name, [Variant(p) for p in plans], options, random.Random(options.seed), progress):
        rates = so_far
    return rates


def check_same(bench: Bench, seq: Plan, auras: Plan) -> None:
    """Both compute the same (design rule 7). Diffusion: auras in one stage, unbatched, bit for bit. Tokens: one
    observation, held still until its request is done, gives the same chunk, unless a token hardly wins (rounding
    decides it then). Raises RuntimeError."""
    if not isinstance(bench.policy, CausalPolicy):
        check_equal(bench, seq.generation)
        return
    seen, chunks = bench.feed(1), []
    for plan in (seq, auras):
        executor = bench.make(plan)
        (strand,) = executor.strands
        emission, frames = None, 0
        while emission is None and frames < plan.latency_frames + 1:
            strand.begin(seen, seen.origin.mono_ns)
            strand.run()
            emission, frames = strand.end(seen.origin.mono_ns), frames + 1
        executor.close()
        if emission is None:
            raise RuntimeError(f"{plan}: no chunk after {frames} frames")
        chunks.append(emission.actions)
    differs = (chunks[0] != chunks[1]).flatten()
    if differs.any() and _clear(bench, seen, int(differs.nonzero()[0])):
        raise RuntimeError(f"{auras}: {int(differs.sum())} of {differs.numel()} numbers of a chunk differ from {seq}")


def _clear(bench: Bench, seen: Latched, token: int) -> bool:
    """Whether all tokens of the observation's chunk up to this one win by more than rounding; what follows another
    token may be anything, and two tokens may mean one action. So where the policy cannot tell."""
    policy = bench.policy
    if not isinstance(policy, AutoregressivePolicy):
        return True
    context = policy.perceive(seen.images.to(bench.device), seen.state.to(bench.device))
    rounded = CLEAR if next(policy.parameters()).dtype == torch.float32 else CLEAR_BFLOAT16
    return float(policy.margins(context)[0, : token + 1].min()) > rounded


def figures(rates: Rates, plan: Plan, seq: Plan) -> dict[str, Any]:
    """rate_hz: median; speedup over seq within each round: median and quartiles."""
    low, middle, high = ratio(rates, Variant(plan), Variant(seq))
    found = rates[Variant(plan)]
    figures = {"rate_hz": median(found), "speedup": middle, "speedup_low": low, "speedup_high": high}
    return {"plan": str(plan), **figures, "rounds": len(found)}


# -- the rates of a played figure's stages on an architecture with random weights -------------------------


def add_rate_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rates of an architecture with random weights, as well")
    group.add_argument("--policy", choices=names(), help="which one (none)")
    _add_measured(group)


Stages = Callable[[Policy, Plan], Sequence[tuple[str, float, Plan]]]


def rates_of(
    parser: argparse.ArgumentParser, options: argparse.Namespace, stages: Stages, report: Report, progress: Progress
) -> None:
    """The figure's plans on --policy, a row each; nothing where none is asked for or it was interrupted before."""
    if options.policy is None or "interrupted" in report.more:
        return
    check_options(parser, options)
    built = build(options.policy, steps=options.steps, **room_as_run(options.device))
    base = Plan("quick" if is_causal(options.policy) else f"ddpm{options.steps}", "auras")
    points, seq = stages(built.policy, base), base.as_mode("seq")
    try:
        for _, _, plan in points:
            check_plan(built.policy, plan)
    except PlanError as error:
        parser.error(f"--policy {options.policy}: {error}")
    bench = Bench(built.policy, options.device, options.seed, most=1)
    try:
        plans = list(dict.fromkeys([seq, *(plan for _, _, plan in points)]))
        rates = measure(bench, options.policy, plans, options, progress)
    except KeyboardInterrupt:
        report.more["interrupted"] = f"interrupted while the rates of {options.policy} were measured"
        return
    finally:
        bench.close()
    for panel, at, plan in points:
        where = {"measure": "rate", "policy": options.policy, "device": bench.device.type, "panel": panel, "at": at}
        report.rows.append({**where, **built.fields(), **figures(rates, plan, seq)})


def rate_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a plan; none where none was measured."""
    if not rows:
        return []
    lines = [
        (f"{rows[0]['policy']} on {rows[0]['device']}, random weights", "chunks/s", "x seq", "quartiles", "rounds")
    ]
    for row in rows:
        quartiles = f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"
        lines.append((row["plan"], f"{row['rate_hz']:.2f}", f"{row['speedup']:.2f}", quartiles, str(row["rounds"])))
    return ["", *aligned(lines)]
