"""`auras bench startup`: time to the first chunk, what making a mode ready costs, and memory of each worker (Auras 6.7,
6.3).

The paper counts as startup what the pipeline adds before its first output: filling it (diffusion), or the first whole
request (autoregressive). Here that is the time from the first observation to the first chunk of an executor that is
warm, for every mode. Beside it what comes before: making the executor, capturing its stages (a GPU's graphs) and
warming up. Memory is what an executor holds beside the weights: its tensors, and on a GPU what torch has reserved for
graphs. Random weights and observations.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from auras_ros.bench.feed import random_feed
from auras_ros.bench.figures.policies import build, is_causal, names
from auras_ros.bench.figures.rounds import kind_of, room
from auras_ros.bench.figures.show import COLOURS, aligned, finish, key, picture, with_paper
from auras_ros.bench.figures.stream import saturate
from auras_ros.bench.pipeline_options import listed
from auras_ros.clock import MonotonicClock
from auras_ros.device import Device, Lane, Stage, make_device
from auras_ros.evaluate.report import Report
from auras_ros.pipeline.modes import check_plan, family_offset, make_executor
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.policies.families import LoadedPolicy
from auras_ros.policies.noise import noise_tape

DEFAULTS = {"cuda": ("dp", "dp-plus", "openvla-7b", "llava-1.5-7b"), "cpu": ("dp-small", "rt2-small")}
LIMIT_S = 300.0
KIB = 1024
Progress = Callable[[str], None]


def run(argv: list[str], progress: Progress) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    torch.set_num_threads(1)
    report = Report("startup")
    try:
        for name in options.policy:
            _measure(name, options, report, progress)
            _sum(report, name, options.workers)
    except KeyboardInterrupt:
        report.more["interrupted"] = "interrupted: what was finished counts"
    return finish("startup", report)


def _measure(name: str, options: argparse.Namespace, report: Report, progress: Progress) -> None:
    """One row a plan. Every executor stays until the end: what it holds is not another's leavings."""
    progress(f"{name}: building")
    began_s = time.monotonic()
    built = build(name, steps=options.steps, **room(options.device))
    device = make_device(options.device).tensors
    built.policy.to(device)
    made_s = time.monotonic() - began_s
    where = {"policy": name, "device": device.type, **built.fields(), "weights_s": made_s}
    policy, kept = built.policy, []
    try:
        for plan in _plans(name, policy, options):
            progress(f"{name}: {plan}")
            executor, row = ready(policy, plan, device, options.seed)
            kept.append(executor)
            row |= first_chunks(executor, policy, options.repeats, options.seed)
            named = {"plan": str(plan), "mode": plan.mode, "workers": plan.workers, "stages": plan.pp_generation}
            report.rows.append({**where, **named, **row})
    finally:
        for executor in kept:
            executor.close()


def _plans(name: str, policy: Any, options: argparse.Namespace) -> list[Plan]:
    kind = "quick" if is_causal(name) else f"ddpm{options.steps}"
    stages = policy.steps if is_causal(name) else options.pp_generation
    auras = Plan(kind, "auras", pp_generation=stages, fetch_offset=family_offset(policy))
    check_plan(policy, auras)
    pars = [auras.as_mode("par", count) for count in dict.fromkeys((1, options.workers))]
    return [auras.as_mode("seq"), auras.as_mode("dec"), *pars, auras]


class Capturing:
    """A device that notes how long its captures take."""

    def __init__(self, inner: Device) -> None:
        self._inner = inner
        self.stages, self.capture_s = 0, 0.0

    @property
    def tensors(self) -> torch.device:
        return self._inner.tensors

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        return self._inner.lane(name, cores, threads)

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        began_s = time.monotonic()
        try:
            return self._inner.capture(name, body, lane)
        finally:
            self.stages, self.capture_s = self.stages + 1, self.capture_s + time.monotonic() - began_s

    def close(self) -> None:
        self._inner.close()


def ready(policy: LoadedPolicy, plan: Plan, device: torch.device, seed: int) -> tuple[Any, dict[str, Any]]:
    """A warm executor, and what making it took and what it holds. The caller closes it."""

    def noise(request: int) -> torch.Tensor:
        return noise_tape(policy.noise_shape, seed, request)[None]

    where = Capturing(make_device(device.type))
    with _growth(device) as grown:
        began_s = time.monotonic()
        executor = make_executor(policy, plan, noise, MonotonicClock(), where)
        executor.warm_up(random_feed(policy, seed, different=1)(0))
        ready_s = time.monotonic() - began_s
    executor.ledger.interval_ns = 0
    costs = {"ready_ms": 1e3 * ready_s, "captures": where.stages, "capture_ms": 1e3 * where.capture_s}
    return executor, {**costs, "frame_ms": executor.frame_ns / 1e6, **grown}


@contextmanager
def _growth(device: torch.device) -> Iterator[dict[str, int]]:
    """Filled at the end: bytes of tensors that were not there before, and of the GPU's memory that torch has taken."""
    found: dict[str, int] = {}
    tensors, reserved = tensor_bytes(), _reserved(device)
    yield found
    found |= {"tensor_bytes": tensor_bytes() - tensors, "reserved_bytes": _reserved(device) - reserved}


def tensor_bytes() -> int:
    """Of every tensor that lives in this process, each storage once."""
    gc.collect()
    kept = {}
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and not each.is_meta:
            storage = each.untyped_storage()
            kept[storage.device.type, storage.data_ptr()] = storage.nbytes()
    return sum(kept.values())


def _reserved(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_reserved(device))


def first_chunks(executor: Any, policy: LoadedPolicy, repeats: int, seed: int) -> dict[str, Any]:
    """From a new epoch's first observation to its first chunk, ms: median, least and most."""
    feed, clock, took_ms = random_feed(policy, seed), MonotonicClock(), []
    for _ in range(repeats):
        began_ns = clock.now_ns()
        ended_ns = saturate(executor, feed, 1, LIMIT_S)
        if not ended_ns:
            raise RuntimeError(f"{executor.plan}: no chunk in {LIMIT_S:g} s")
        took_ms.append((ended_ns[0] - began_ns) / 1e6)
    spread = {"first_chunk_ms_low": min(took_ms), "first_chunk_ms_high": max(took_ms)}
    return {"first_chunk_ms": median(took_ms), **spread, "repeats": repeats}


def _sum(report: Report, name: str, workers: int) -> None:
    """auras beside the paper's, the same of seq, and what one more worker of par holds."""
    rows = {(row["mode"], row["workers"]): row for row in report.rows if row["policy"] == name}
    auras, seq, summary = rows["auras", 1], rows["seq", 1], report.summary
    summary[f"first_chunk_ms_{key(name)}"] = auras["first_chunk_ms"]
    summary[f"first_chunk_ms_{key(name)}_seq"] = seq["first_chunk_ms"]
    for mode, row in (("auras", auras), ("seq", seq)):
        summary[f"ready_ms_{key(name)}_{mode}"] = row["ready_ms"]
        summary[f"tensor_kib_{key(name)}_{mode}"] = row["tensor_bytes"] / KIB
        summary[f"reserved_kib_{key(name)}_{mode}"] = row["reserved_bytes"] / KIB
    if workers > 1:
        for kind in ("tensor", "reserved"):
            more = rows["par", workers][f"{kind}_bytes"] - rows["par", 1][f"{kind}_bytes"]
            summary[f"worker_{kind}_kib_{key(name)}"] = more / (workers - 1) / KIB


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="auras bench startup", description=__doc__)
    some = "; ".join(f"{','.join(which)} on {kind}" for kind, which in DEFAULTS.items())
    parser.add_argument("--policy", type=listed(str), help=f"some of {', '.join(names())} ({some})")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: a GPU if there")
    parser.add_argument("--steps", type=int, default=100, help="denoising steps of a chunk (100)")
    parser.add_argument("--pp-generation", type=int, default=8, help="stages of denoising (8)")
    parser.add_argument("--workers", type=int, default=3, help="par's larger count (3)")
    parser.add_argument("--repeats", type=int, default=5, help="first chunks of each plan (5)")
    parser.add_argument("--seed", type=int, default=0, help="of observations and noise (0)")
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the process with status 2 for what cannot be measured."""
    options.policy = list(options.policy or DEFAULTS[kind_of(options.device)])
    for name in options.policy:
        if name not in names():
            parser.error(f"--policy: '{name}' is not known; there is {', '.join(names())}")
    if options.repeats < 1 or options.steps < options.pp_generation:
        parser.error("--repeats must be at least 1, and --steps at least --pp-generation")
    try:
        Plan("quick", "auras", pp_generation=options.pp_generation)
        Plan("quick", "par", workers=options.workers)
    except PlanError as error:
        parser.error(str(error))


def table(report: Report) -> str:
    columns = ("plan", "policy", "first chunk ms", "least to most", "frame ms", "ready ms", "captures", "of it ms")
    lines = aligned([(*columns, "tensors KiB", "reserved KiB"), *map(_cells, report.rows)])
    return with_paper("startup", report, lines)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    span = f"{row['first_chunk_ms_low']:.1f} to {row['first_chunk_ms_high']:.1f}"
    times = (f"{row['first_chunk_ms']:.1f}", span, f"{row['frame_ms']:.1f}", f"{row['ready_ms']:.0f}")
    memory = (f"{row['tensor_bytes'] / KIB:.0f}", f"{row['reserved_bytes'] / KIB:.0f}")
    return (row["plan"], row["policy"], *times, str(row["captures"]), f"{row['capture_ms']:.0f}", *memory)


def draw(report: Report, path: Path) -> None:
    """Of each policy the time to the first chunk by mode, beside one frame."""
    policies = list(dict.fromkeys(row["policy"] for row in report.rows))
    with picture(path, "from the first observation to the first chunk, ms", max(1, len(policies))) as axes:
        for one, name in zip(axes, policies, strict=False):
            rows = [row for row in report.rows if row["policy"] == name]
            labels = [f"{row['mode']} {row['workers']}" if row["mode"] == "par" else row["mode"] for row in rows]
            one.bar(labels, [row["first_chunk_ms"] for row in rows], color=[COLOURS[row["mode"]] for row in rows])
            one.plot(labels, [row["frame_ms"] for row in rows], "_", color="black", markersize=18, label="one frame")
            one.set_title(f"{name} on {rows[0]['device']}", fontsize=9)
            one.legend(fontsize=8)
