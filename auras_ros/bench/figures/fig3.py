"""`auras bench fig3`: utilisation of the device by the phases of one request of seq (Auras figure 3).

The paper profiled warp occupancy with Nsight. Here it is a share of the device's peak: the counted floating point
operations of a phase, divided by its time and by the rate that one large matrix product of the same dtype reaches on
this device. Memory waits and small launches lower this share, but not occupancy, so the numbers cannot be compared with
the paper's: compare perception with generation, and policies with one another. On a CPU the device is one thread. On a
GPU generation is launched before the host waits for perception. If that launch takes longer than perception, as with
graphs of thousands of kernels, perception's time includes it: it is then too long, and generation's too short.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch

from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.options import add_device, add_minutes, add_policies, add_seed, bench_parser, check_least
from auras_ros.bench.policies import build, generation_of, where_built_as_run
from auras_ros.device.make import kind_of
from auras_ros.device.precision import full_float32
from auras_ros.measure.compare import Job, run_jobs
from auras_ros.measure.cores import available
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import random_feed
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.slicing import counting
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.policy import CausalPolicy
from auras_ros.report.picture import BLUE, ORANGE, legend_below, picture
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, grouped_by, in_columns

DEFAULTS = {"cuda": ("dp", "openvla-7b", "tinyvla-1.3b"), "cpu": ("dp-small", "rt2-small", "tinyvla-small")}
SIZES = {"cuda": 8192, "cpu": 1024}  # of the matrix product whose rate counts as the device's peak
COLUMNS: tuple[Column, ...] = (
    ("policy", "{policy}"),
    ("cores", "{cores}"),
    ("phase", "{phase}"),
    ("ms", "{ms:.2f}"),
    ("GFLOP", "{gflop:.2f}"),
    ("of the device, %", "{utilisation_percent:.1f}"),
)
NOTE = "the paper's are warp occupancies; ours are shares of the operations that the device reaches: not the same"


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("fig3", more={"note": NOTE})
    peaks: dict[torch.dtype, float] = {}
    with full_float32():  # else convolutions would run in TF32 and the matrix product in float32
        run_jobs({name: partial(_measure, name, peaks) for name in options.policy}, options, report, progress)
    return finish(report)


@torch.no_grad()
def peak_flops(device: torch.device, size: int, rounds: int = 7, dtype: torch.dtype = torch.float32) -> float:
    """Floating point operations per second of a product of two square matrices of this dtype: the median of `rounds`
    products."""
    one = torch.randn(size, size, device=device, dtype=dtype)
    took_s = []
    for _ in range(rounds + 1):
        _wait(device)
        began_s = time.perf_counter()
        one @ one
        _wait(device)
        took_s.append(time.perf_counter() - began_s)
    return 2 * size**3 / median(took_s[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _measure(name: str, peaks: dict[torch.dtype, float], job: Job) -> None:
    """A row for each phase of a request. peaks: operations per second that the device reaches, by dtype."""
    options, report = job.options, job.report
    job.say(f"{name}: building, counting")
    built = build(name, steps=options.steps, **where_built_as_run(options.device))
    with job.bench(built.policy) as bench:
        if built.dtype not in peaks:
            job.say("measuring the device's peak")
            peaks[built.dtype] = peak_flops(bench.device, options.size, dtype=built.dtype)
            in_its_type = "" if built.dtype == torch.float32 else f"_{str(built.dtype).removeprefix('torch.')}"
            report.summary[f"peak_gflop_per_s{in_its_type}"] = peaks[built.dtype] / 1e9
        counted = dict(zip(("perception", "generation"), operations(built.policy, bench), strict=True))
        job.say(f"{name}: timing {options.requests} requests")
        took_s, requests = phases(bench, generation_of(name, options.steps), options.requests, job.ends.soft_s)
    counted["request"], took_s["request"] = sum(counted.values()), took_s["perception"] + took_s["generation"]
    for phase, seconds in took_s.items():
        used = 100 * counted[phase] / seconds / peaks[built.dtype]
        sizes = {"policy": name, "device": bench.device.type, "cores": job.cores, **built.fields()}
        figures = {"ms": 1e3 * seconds, "gflop": counted[phase] / 1e9, "utilisation_percent": used}
        report.rows.append({**sizes, "phase": phase, **figures, "requests": requests})
        report.summary[f"utilisation_{key(name)}_{phase}"] = used


@torch.no_grad()
def operations(policy: LoadedPolicy, bench: Bench) -> tuple[int, int]:
    """Floating point operations of perception and of a whole generation, counted by running them."""
    seen = bench.feed(1)
    images, state = seen.images.to(bench.device), seen.state.to(bench.device)
    context = policy.perceive(images, state)
    index = torch.zeros(1, dtype=torch.int64, device=bench.device)
    with counting() as perceiving:
        policy.perceive(images, state)
    with counting() as generating:
        if isinstance(policy, CausalPolicy):
            policy.complete(context, policy.workspace(1, context.shape[1]))
            times = 1
        else:  # all steps cost the same
            policy.step(policy.begin(bench.noise(0).to(bench.device)), context, index)
            times = policy.steps
    return int(perceiving.get_total_flops()), times * int(generating.get_total_flops())


def phases(bench: Bench, generation: str, requests: int, soft_s: float = math.inf) -> tuple[dict[str, float], int]:
    """Median seconds of perception and generation in a warm executor of seq, and the number of requests timed: at least
    one, and no further one after soft_s."""
    executor = bench.prepare(Plan(generation))
    (worker,) = executor.workers
    took: list[tuple[float, float]] = []
    feed = random_feed(bench.policy, 1)
    while len(took) < requests and not (took and time.monotonic() > soft_s):
        now_ns = executor.clock.now_ns()
        worker.begin(feed(now_ns), now_ns)
        began_ns = executor.clock.now_ns()
        worker.run()
        emission = worker.end(executor.clock.now_ns())
        if emission is None:
            raise RuntimeError(f"{executor.plan}: a request gave no chunk")
        perceived_ns = emission.perceived_ns
        took.append(((perceived_ns - began_ns) / 1e9, (emission.generated_ns - perceived_ns) / 1e9))
    medians = {"perception": median(one for one, _ in took), "generation": median(other for _, other in took)}
    return medians, len(took)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = bench_parser("fig3", __doc__)
    add_policies(parser, DEFAULTS)
    add_device(parser)
    add_minutes(parser, 10.0)
    parser.add_argument("--requests", type=int, default=10, help="number of timed requests (10)")
    parser.add_argument("--size", type=int, help="of the matrices that measure the device's peak (8192; CPU 1024)")
    add_seed(parser)
    options = parser.parse_args(argv)
    kind = kind_of(options.device)
    options.policy = options.policy or DEFAULTS[kind]
    options.cores = [1 if kind == "cpu" else available()]  # phases run in one thread
    options.size = SIZES[kind] if options.size is None else options.size
    check_least(parser, options, requests=1, steps=2, seed=0, size=1)
    return options


def table(report: Report) -> str:
    return with_paper(report, in_columns(report.rows, COLUMNS))


def draw(report: Report, path: Path) -> None:
    """Each policy's request over time: width is a phase's duration, height its share of the device's peak."""
    policies = grouped_by(report.rows, "policy")
    with picture(path, "share of the device's peak within one request of seq", max(1, len(policies))) as axes:
        for one, ((name,), rows) in zip(axes, policies.items(), strict=False):
            at_ms = 0.0
            for row, colour in zip(rows, (ORANGE, BLUE), strict=False):  # perception, generation
                used = row["utilisation_percent"]
                one.bar([at_ms], [used], row["ms"], align="edge", color=colour, label=f"{row['phase']}, {used:.1f} %")
                at_ms += row["ms"]
            one.set(title=f"{name} on {report.rows[0]['device']}", xlabel="ms", ylabel="% of the device")
            legend_below(one)
