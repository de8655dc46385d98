"""`auras bench cohost`: the policy on one core, alone and beside a busy vision-language model on another.

The policy runs as `auras` on the first core of this process, on recorded images that are always available. The model
runs in a process of its own on the second core, with questions about images in flight all the time. Windows alone and
beside it alternate within a round; for those alone the model's process is stopped (SIGSTOP). So the ratio is what the
shared memory and caches cost, and what two processes cost each other.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.bench.cohost import busy_vlm
from auras_ros.bench.options import add_minutes, add_seed, add_steps, amount, bench_parser, check_least, refusing
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.measure.cores import on_cores
from auras_ros.measure.executors import Bench
from auras_ros.measure.minutes import Ends, OverError, run_parts
from auras_ros.measure.running import Running
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission
from auras_ros.policies.architectures import RECIPES, make_policy
from auras_ros.report.result import Report, Say

READY_S, END_S = 300.0, 20.0
LEAST_FRAMES = 8


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("cohost")
    run_parts(report, options.minutes, {"cohost": lambda ends: _measure(report, options, ends, progress)})
    return report


def _options(argv: list[str]) -> argparse.Namespace:
    parser = bench_parser("cohost", __doc__)
    parser.add_argument("--policy", choices=sorted(RECIPES), default="dp-small", help="(dp-small)")
    add_steps(parser)
    parser.add_argument("--pp-generation", type=int, default=8, help="stages of denoising (8)")
    parser.add_argument("--vlm", type=Path, help="folder of the vision-language model (checkpoints/pusht-vlm)")
    parser.add_argument("--rounds", type=int, default=10, help="each with a window alone and one beside the model (10)")
    parser.add_argument("--seconds", type=amount, default=3.0, help="of a window (3)")
    add_minutes(parser, 10.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, rounds=1, seed=0, pp_generation=1, steps=2)
    options.cores = sorted(os.sched_getaffinity(0))
    if len(options.cores) < 2:
        parser.error("two cores are needed: one for the policy, one for the model")
    with refusing(parser, FileNotFoundError, CheckpointError, what="--vlm: "):
        options.vlm = options.vlm or resources.checkpoint("pusht-vlm")
        if not (options.vlm / "config.json").is_file():
            raise FileNotFoundError(f"{options.vlm}: no config.json")
    return options


def _measure(report: Report, options: argparse.Namespace, ends: Ends, say: Say) -> None:
    plan = Plan(f"ddpm{options.steps}", "auras", pp_generation=options.pp_generation)
    policy = make_policy(options.policy, seed=options.seed, steps=options.steps)
    with closing(Bench(policy, "cpu", options.seed, 1, cores=1)) as bench, _busy(options) as process:
        executor = bench.prepare(plan)
        order = random.Random(options.seed)
        for number in range(options.rounds):
            if number and time.monotonic() > ends.soft_s:
                return
            say(f"round {number + 1} of {options.rounds}")
            for beside in order.sample((False, True), 2):
                if time.monotonic() > ends.hard_s:
                    raise OverError
                process.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
                before_s = _cpu_s(process.pid)
                intervals_ms = _window(bench, executor, options.seconds)
                busy_s = _cpu_s(process.pid) - before_s
                where = {"round": number, "beside": beside, "cores": 1, "vlm_cores": 1, "policy": options.policy}
                report.rows.append(where | {"vlm": options.vlm.name} | window_row(intervals_ms, busy_s))
                report.summary |= summarised(report.rows)


def window_row(intervals_ms: list[float], busy_s: float) -> dict[str, float]:
    """busy_s: CPU time of the model's process in the window."""
    percentiles = {f"frame_ms_p{at}": float(np.percentile(intervals_ms, at)) for at in (50, 99, 100)}
    seconds = sum(intervals_ms) / 1e3
    return {
        "chunks_per_s": len(intervals_ms) / seconds,
        "n": len(intervals_ms),
        "vlm_busy": busy_s / seconds,
    } | percentiles


def summarised(rows: list[dict[str, Any]]) -> dict[str, float]:
    """chunk_rate_kept: the median over rounds of the rate beside the model over the rate alone. Of frames alone and
    beside: medians of the windows' median, 99th percentile and longest, ms. vlm_busy: the share of a window for which
    the model's core was busy."""
    alone, beside = ({row["round"]: row for row in rows if row["beside"] is which} for which in (False, True))
    kept = [beside[number]["chunks_per_s"] / alone[number]["chunks_per_s"] for number in alone if number in beside]
    if not kept:
        return {}
    found = {"chunk_rate_kept": median(kept), "chunk_rate_kept_least": min(kept), "rounds": len(kept)}
    for name, windows in (("alone", alone), ("beside", beside)):
        for figure in ("frame_ms_p50", "frame_ms_p99", "frame_ms_p100"):
            found[f"{figure}_{name}"] = median(row[figure] for row in windows.values())
    return {**found, "vlm_busy": median(row["vlm_busy"] for row in beside.values())}


def _window(bench: Bench, executor: Executor, seconds: float) -> list[float]:
    """Times between chunks, ms; a frame makes one. The first one, from before the window, does not count."""
    came: list[int] = []
    over = threading.Event()

    def emit(_: Emission) -> None:
        came.append(time.monotonic_ns())
        if len(came) > LEAST_FRAMES and came[-1] - came[1] >= seconds * 1e9:
            over.set()

    with on_cores(1), Running(executor, bench.feed, emit) as live:
        live.wait(over, 10 * seconds + 60)
    return [float(each) / 1e6 for each in np.diff(came[1:])]


@contextmanager
def _busy(options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """The model's process, busy already. Raises RuntimeError with what it said if it ends or is not ready in time."""
    command = [sys.executable, busy_vlm.__file__, str(options.vlm), str(options.cores[1]), str(options.seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        timer = threading.Timer(READY_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the model's process ended with {process.wait()}; its error is above")
            timer.cancel()
            yield process
        finally:
            timer.cancel()
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
