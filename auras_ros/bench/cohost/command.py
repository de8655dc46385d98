"""`auras bench cohost`: the policy alone and beside a busy vision-language model, on two cores.

The policy runs as `auras` with one intra-op thread, on recorded images that are always available: frames back to back,
and frames on a grid as on a robot. The model has questions about images in flight all the time. Modes:
  alone                        the model is stopped
  two_processes                a core each (partition)
  two_processes_no_partition   both anywhere on two cores, the model with two intra-op threads, as it would have them
  two_processes_one_thread     the same with one
  one_process                  the model in a thread of the policy's process, a core each
  one_process_no_partition     the same anywhere, the model with two intra-op threads
  one_core                     the same on the policy's core, only on the grid
  one_core_reservation         the same, and the model works only between the frames
Windows of all modes alternate within a round, in random order; models that are not measured are stopped.
"""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from contextlib import ExitStack, closing

import numpy as np
import torch

from auras_ros import resources
from auras_ros.bench.cohost.figures import summarised, window_row
from auras_ros.bench.cohost.loads import VlmLoad
from auras_ros.bench.cohost.modes import ALONE, BESIDE, CohostMode
from auras_ros.bench.options import (
    add_minutes,
    add_seed,
    add_steps,
    amount,
    bench_parser,
    check_least,
    listed,
    refusing,
)
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.measure.cores import on_cores
from auras_ros.measure.executors import Bench
from auras_ros.measure.minutes import Ends, OverError, run_parts
from auras_ros.measure.running import Running
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.request import Emission
from auras_ros.policies.architectures import RECIPES, make_policy
from auras_ros.report.result import Report, Say

LEAST_FRAMES = 8


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("cohost")
    run_parts(report, options.minutes, {"cohost": lambda ends: _measure(report, options, ends, progress)})
    return report


def _options(argv: list[str]) -> argparse.Namespace:
    names = [mode.name for mode in BESIDE]
    parser = bench_parser("cohost", __doc__)
    parser.add_argument("--policy", choices=sorted(RECIPES), default="dp-small", help="(dp-small)")
    add_steps(parser)
    parser.add_argument("--pp-generation", type=int, default=8, help="stages of denoising (8)")
    parser.add_argument("--vlm", default="pusht-vlm", help="vision-language model: a name or a folder (pusht-vlm)")
    parser.add_argument("--modes", type=listed(str, names), default=names, help=f"some of {','.join(names)} (all)")
    parser.add_argument("--period-ms", type=amount, default=100.0, help="of the frame grid (100)")
    parser.add_argument("--rounds", type=int, default=10, help="each with windows of all modes (10)")
    parser.add_argument("--seconds", type=amount, default=3.0, help="of a window (3)")
    add_minutes(parser, 15.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, rounds=1, seed=0, pp_generation=1, steps=2, period_ms=1)
    options.modes = [mode for mode in BESIDE if mode.name in options.modes]
    options.cores = sorted(os.sched_getaffinity(0))
    if len(options.cores) < 2:
        parser.error("two cores are needed: one for the policy, one for the model")
    with refusing(parser, PlanError):
        options.plans = {period_ms: _plan(options, period_ms) for period_ms in (0.0, options.period_ms)}
    with refusing(parser, FileNotFoundError, CheckpointError, what="--vlm: "):
        options.vlm = resources.checkpoint(options.vlm)
        if not (options.vlm / "config.json").is_file():
            raise FileNotFoundError(f"{options.vlm}: no config.json")
    return options


def _plan(options: argparse.Namespace, period_ms: float) -> Plan:
    stages = options.pp_generation
    return Plan(f"ddpm{options.steps}", "auras", pp_generation=stages, frame_period_ms=period_ms)


def _measure(report: Report, options: argparse.Namespace, ends: Ends, say: Say) -> None:
    torch.set_num_threads(1)  # the executors are warmed up in this thread, on one core
    policy = make_policy(options.policy, seed=options.seed, steps=options.steps)
    windows = [(mode, 0.0) for mode in (ALONE, *options.modes) if not mode.grid_only]
    windows += [(mode, options.period_ms) for mode in (ALONE, *options.modes)]
    with closing(Bench(policy, "cpu", options.seed, 1, cores=1)) as bench, ExitStack() as stack:
        executors = {period_ms: bench.prepare(plan) for period_ms, plan in options.plans.items()}
        loads = {mode: stack.enter_context(closing(_load(mode, options))) for mode in options.modes}
        order = random.Random(options.seed)
        for number in range(options.rounds):
            if number and time.monotonic() > ends.soft_s:
                return
            say(f"round {number + 1} of {options.rounds}")
            for mode, period_ms in order.sample(windows, len(windows)):
                if time.monotonic() > ends.hard_s:
                    raise OverError
                measured = _window(bench, executors[period_ms], mode, loads.get(mode), options.seconds)
                where = {"round": number, "mode": mode.name, "period_ms": period_ms, "cores": mode.policy_cores}
                what = {
                    "vlm_cores": len(mode.vlm_cores),
                    "vlm_threads": mode.vlm_threads,
                    "policy": options.policy,
                    "vlm": options.vlm.name,
                }
                report.rows.append({**where, **what, **measured})
                report.summary |= summarised(report.rows)


def _load(mode: CohostMode, options: argparse.Namespace) -> VlmLoad:
    assert mode.load is not None
    return mode.load(options.vlm, [options.cores[core] for core in mode.vlm_cores], mode.vlm_threads, options.seed)


def _window(
    bench: Bench, executor: Executor, mode: CohostMode, load: VlmLoad | None, seconds: float
) -> dict[str, float]:
    """The row of one window. The first chunk, from before the window, does not count."""
    came: list[int] = []
    frame_ms: list[float] = []
    tokens: list[int] = []
    over = threading.Event()

    def emit(emission: Emission) -> None:
        if over.is_set():
            return
        came.append(time.monotonic_ns())
        frame_ms.append((emission.generated_ns - emission.latched_ns) / 1e6)
        tokens.append(load.tokens() if load else 0)
        if len(came) > LEAST_FRAMES and came[-1] - came[1] >= seconds * 1e9:
            over.set()

    if load:
        load.resume()
    try:
        live = Running(executor, bench.feed, emit)
        if load and load.frames:
            live.announce_to(load.frames)
        with on_cores(mode.policy_cores), live:
            live.wait(over, 10 * seconds + 60)
    finally:
        if load:
            load.pause()
    intervals_ms = [float(each) / 1e6 for each in np.diff(came[1:])]
    return window_row(intervals_ms, frame_ms[2:], tokens[-1] - tokens[1])
