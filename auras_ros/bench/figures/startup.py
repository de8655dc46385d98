"""`auras bench startup`: time to the first chunk, cost of preparing a mode, and memory of each worker (Auras 6.7, 6.3).

The paper counts as startup what the pipeline adds before its first output: filling it (diffusion), or the first whole
request (autoregressive). Here that is the time from the first observation to the first chunk of a warm executor, for
every mode. The time before that is reported too: making the executor, capturing its stages (a GPU's graphs) and warming
up. Memory is what an executor holds besides the weights: its tensors, and on a GPU the memory that torch has reserved
for graphs. With --max-memory-mb the weights beyond it are copied to the device when they run, and the report names the
stages with such weights. Random weights and observations.
"""

from __future__ import annotations

import argparse
import math
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.options import check_least, checking_policies, policy_parser
from auras_ros.bench.policies import auras_plan, build, where_built, where_built_as_run
from auras_ros.clock import MonotonicClock
from auras_ros.device import MB, Offload, in_words, make_device
from auras_ros.loading.placement import place_policy
from auras_ros.measure.compare import Job, run_jobs
from auras_ros.measure.cores import on_cores, suffix, words
from auras_ros.measure.feed import random_feed
from auras_ros.measure.memory import Capturing, held_by
from auras_ros.measure.minutes import OVER, OverError, attempt
from auras_ros.measure.stream import saturate
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.picture import COLOURS, legend_below, picture
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, grouped_by, in_columns

DEFAULTS = {"cuda": ("dp", "dp-plus", "openvla-7b", "llava-1.5-7b"), "cpu": ("dp-small", "rt2-small")}
LIMIT_S = 300.0
KIB = 1024


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("startup")
    run_jobs({name: partial(_measure, name) for name in options.policy}, options, report, progress)
    return finish(report)


def _measure(name: str, job: Job) -> None:
    """One row for each plan. No executor is closed before the end, so none reuses the memory of another."""
    what, options = job.what, job.options
    with on_cores(job.cores), ExitStack() as kept:
        job.say(f"{what}: building")
        began_s = time.monotonic()
        arguments = where_built_as_run(options.device)
        if options.offload:  # from host memory
            arguments |= where_built("cpu")
        built = build(name, steps=options.steps, **arguments)
        policy, device = built.policy, make_device(options.device).tensors
        placed = place_policy(policy, device, options.offload)
        made_s = time.monotonic() - began_s
        weights = {"weights_s": made_s, "weights_mb": placed.resident / MB, "offloaded_mb": placed.offloaded / MB}
        where = {"policy": name, "device": device.type, "cores": job.cores, **built.fields(), **weights}
        for plan in _plans(name, policy, options):
            job.say(f"{what}: {plan}")
            with attempt(job.report, f"{what}, {plan}"):
                if time.monotonic() > job.ends.hard_s:
                    raise OverError(OVER)
                executor, row = ready(policy, plan, device, options.seed)
                kept.callback(executor.close)
                row |= first_chunks(executor, policy, options.repeats, options.seed, job.ends.hard_s)
                named = {"plan": str(plan), "mode": plan.mode, "concurrency": plan.concurrency}
                job.report.rows.append({**where, **named, "stages": plan.pp_generation, **row})
    _sum(job.report, name, job.cores, options)


def _plans(name: str, policy: LoadedPolicy, options: argparse.Namespace) -> list[Plan]:
    auras = auras_plan(name, policy, options)
    pars = [auras.as_mode("par", count) for count in dict.fromkeys((1, options.concurrency))]
    return [auras.as_mode("seq"), auras.as_mode("dec"), *pars, auras]


def ready(policy: LoadedPolicy, plan: Plan, device: torch.device, seed: int) -> tuple[Any, dict[str, Any]]:
    """A warm executor, and a row with the time to make it and its memory. The caller closes it."""
    like = random_feed(policy, seed, different=1)(0)
    where: Any = Capturing(make_device(device.type))
    with held_by(device) as grown:
        began_s = time.monotonic()
        executor = make_executor(RunContext(policy, plan, noise_of(policy, seed), like, device=where, spaced=False))
        executor.warm_up()
        ready_s = time.monotonic() - began_s
    costs = {"ready_ms": 1e3 * ready_s, "captures": where.stages, "capture_ms": 1e3 * where.capture_s}
    said = {"uncaptured": in_words(where.uncaptured)}
    return executor, {**costs, **said, "frame_ms": executor.frame_ns / 1e6, **grown}


def first_chunks(
    executor: Any, policy: LoadedPolicy, repeats: int, seed: int, end_s: float = math.inf
) -> dict[str, Any]:
    """ms from a new epoch's first observation to its first chunk: median, lowest and highest, with fewer repeats if
    end_s of the monotonic clock comes earlier. Raises OverError if it comes before the first chunk."""
    feed, clock, took_ms = random_feed(policy, seed), MonotonicClock(), list[float]()
    while len(took_ms) < repeats and (left_s := end_s - time.monotonic()) > 0:
        began_ns = clock.now_ns()
        ended_ns = saturate(executor, feed, 1, min(LIMIT_S, left_s))
        if not ended_ns and left_s < LIMIT_S:
            break
        if not ended_ns:
            raise RuntimeError(f"{executor.plan}: no chunk in {LIMIT_S:g} s")
        took_ms.append((ended_ns[0] - began_ns) / 1e6)
    if not took_ms:
        raise OverError
    spread = {"first_chunk_ms_low": min(took_ms), "first_chunk_ms_high": max(took_ms)}
    return {"first_chunk_ms": median(took_ms), **spread, "repeats": len(took_ms)}


def _sum(report: Report, name: str, cores: int, options: argparse.Namespace) -> None:
    """The summary of auras and seq, and the memory of one more worker of par."""
    own = grouped_by(report.rows, "policy", "cores").get((name, cores), [])
    rows = {(row["mode"], row["concurrency"]): row for row in own}
    summary, ending = report.summary, suffix(cores, options.cores)
    for mode, last in (("auras", ""), ("seq", "_seq")):
        if row := rows.get((mode, 1)):
            summary[f"first_chunk_ms_{key(name)}{last}{ending}"] = row["first_chunk_ms"]
            summary[f"ready_ms_{key(name)}_{mode}{ending}"] = row["ready_ms"]
            summary[f"tensor_kib_{key(name)}_{mode}{ending}"] = row["tensor_bytes"] / KIB
            summary[f"reserved_kib_{key(name)}_{mode}{ending}"] = row["reserved_bytes"] / KIB
    one, several = rows.get(("par", 1)), rows.get(("par", options.concurrency))
    if one and several and options.concurrency > 1:
        for kind in ("tensor", "reserved"):
            more = several[f"{kind}_bytes"] - one[f"{kind}_bytes"]
            summary[f"worker_{kind}_kib_{key(name)}{ending}"] = more / (options.concurrency - 1) / KIB


def _options(argv: list[str]) -> argparse.Namespace:
    parser = policy_parser("startup", __doc__, DEFAULTS, stages=8, windows=False)
    parser.add_argument("--concurrency", type=int, default=3, help="concurrency of the larger par (3)")
    parser.add_argument("--repeats", type=int, default=5, help="first chunks of each plan (5)")
    parser.add_argument("--max-memory-mb", type=float, default=0.0, help="device memory for weights, MB (0: all)")
    parser.add_argument("--offload-folder", type=Path, help="folder for the other weights (host memory)")
    options = parser.parse_args(argv)
    check_least(parser, options, repeats=1)
    with checking_policies(parser, options, DEFAULTS):
        Plan("quick", "par", concurrency=options.concurrency)
        given = options.max_memory_mb or options.offload_folder
        options.offload = Offload(options.max_memory_mb, options.offload_folder) if given else None
    return options


COLUMNS: tuple[Column, ...] = (
    ("plan", "{plan}"),
    ("policy", "{policy}"),
    ("cores", "{cores}"),
    ("first chunk ms", "{first_chunk_ms:.1f}"),
    ("least to most", "{first_chunk_ms_low:.1f} to {first_chunk_ms_high:.1f}"),
    ("frame ms", "{frame_ms:.1f}"),
    ("ready ms", "{ready_ms:.0f}"),
    ("captures", "{captures}"),
    ("of it ms", "{capture_ms:.0f}"),
    ("tensors KiB", lambda row: f"{row['tensor_bytes'] / KIB:.0f}"),
    ("reserved KiB", lambda row: f"{row['reserved_bytes'] / KIB:.0f}"),
)


def table(report: Report) -> str:
    run = {f"not captured, {row['plan']}: {row['uncaptured']}" for row in report.rows if row["uncaptured"]}
    return with_paper(report, [*in_columns(report.rows, COLUMNS), *sorted(run)])


def draw(report: Report, path: Path) -> None:
    """For each policy the time to the first chunk by mode, and the duration of one frame."""
    groups = grouped_by(report.rows, "policy", "cores")
    with picture(path, "from the first observation to the first chunk, ms", max(1, len(groups))) as axes:
        for one, ((name, count), rows) in zip(axes, groups.items(), strict=False):
            labels = [f"{row['mode']} {row['concurrency']}" if row["mode"] == "par" else row["mode"] for row in rows]
            one.bar(labels, [row["first_chunk_ms"] for row in rows], color=[COLOURS[row["mode"]] for row in rows])
            one.plot(labels, [row["frame_ms"] for row in rows], "_", color="black", markersize=18, label="one frame")
            one.set_title(f"{name} on {rows[0]['device']}, {words(count)} for each")
            legend_below(one, under=-0.08)
