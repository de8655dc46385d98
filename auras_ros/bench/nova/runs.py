"""What Nova's benches share: traces, runs on a virtual clock in several processes, and a run's figures."""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.contenders import Contender, DeviceSetup
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.simulation import Arrival, Served, SimulatedForwards, simulate
from auras_ros.measure.minutes import CUT, OverError
from auras_ros.report.result import Report, Say
from auras_ros.report.statistics import student

# Blocks for 300 requests, as 21 GB beside the weights hold on an RTX A6000 (V-A1, V-A2): nobody is preempted.
OPTIONS = EngineOptions(
    length=1 << 14, block=64, kv_mib=4, running=64, waiting=100_000, prefix_cache=False, image_cache_mib=0
)
METRICS = (
    "mean_e2e_s", "max_e2e_s", "ttft_s", "tbt_ms", "tbt_ms_p99", "tbt_ms_max", "throughput_hz", "decode_batch",
    "processing_s", "delay_s",
)  # fmt: skip
LEAST_SEEDS = 2  # for an interval
Figures = Mapping[str, float]
Results = dict[Any, list[Figures]]  # by what was run, a run of each seed
RunAll = Callable[[Sequence["RunJob"], float], list[Figures]]


@dataclass(frozen=True)
class RunJob:
    setup: DeviceSetup
    contender: Contender
    trace: tuple[Arrival, ...]


def poisson(rate_hz: float, requests: int, seed: int) -> tuple[Arrival, ...]:
    """Arrivals of a Poisson process. One seed gives the same intervals for every rate, but for their scale, and the
    same answers, whose lengths are triangular."""
    chance, at_s, trace = random.Random(seed), 0.0, list[Arrival]()
    for _ in range(requests):
        at_s += chance.expovariate(1.0) / rate_hz
        trace.append(Arrival(at_s, answer_tokens(chance)))
    return tuple(trace)


def answer_tokens(chance: random.Random) -> int:
    least, likeliest, most = a6000.TOKENS
    return round(chance.triangular(least, most, likeliest))


def jobs_of(
    options: argparse.Namespace,
    setup: DeviceSetup,
    rates: Sequence[float],
    contenders: Sequence[Contender],
    trace: Callable[[float, int, int], tuple[Arrival, ...]] = poisson,
) -> dict[Any, Callable[[int], RunJob]]:
    """By rate and contender: from a seed to what is run. trace: of a rate, requests and a seed."""

    def job(rate: float, contender: Contender, seed: int) -> RunJob:
        return RunJob(setup, contender, trace(rate * options.rate_hz, options.requests, seed))

    return {(rate, each): partial(job, rate, each) for rate in rates for each in contenders}


def run(job: RunJob) -> Figures:
    return figures(*simulate(job.contender.make(job.setup), job.contender.profile(job.setup), job.trace, OPTIONS))


def figures(served: Sequence[Served], forwards: SimulatedForwards) -> Figures:
    """Of one run. processing: in vision and prefill; delay: all other time before the first token. throughput_hz: from
    the first arrival to the last end. tbt: over all tokens of all requests. decode_batch: rows that decode, over all
    forwards that have some."""
    timings = [each.usage.timings for each in served]
    e2e_s = [(each.ended_ns - each.arrived_ns) / 1e9 for each in timings]
    ttft_s = np.array([(each.first_token_ns - each.arrived_ns) / 1e9 for each in timings])
    processing_s, rows = _spent(len(served), forwards)
    tbt_ms = np.concatenate([np.diff(each.tokens_ns) for each in served]) / 1e6
    span_s = (max(each.ended_ns for each in timings) - timings[0].arrived_ns) / 1e9
    found = {
        "mean_e2e_s": np.mean(e2e_s),
        "max_e2e_s": np.max(e2e_s),
        "ttft_s": np.mean(ttft_s),
        "tbt_ms": np.mean(tbt_ms),
        "tbt_ms_p99": np.percentile(tbt_ms, 99),
        "tbt_ms_max": np.max(tbt_ms),
        "throughput_hz": len(served) / span_s,
        "decode_batch": np.mean(rows),
        "processing_s": np.mean(processing_s),
        "processing_square_s2": np.mean(processing_s**2),
        "delay_s": np.mean(ttft_s - processing_s),
    }
    return {name: float(value) for name, value in found.items()}


def _spent(requests: int, forwards: SimulatedForwards) -> tuple[Any, list[int]]:
    """(time in vision and prefill of each request, s; rows that decode in each forward with some). In a hybrid forward
    those decode that had their first token when it began."""
    processing_s, batches = np.zeros(requests), list[int]()
    for dispatch, began_ns, ended_ns in forwards.log:
        decoding = [0 < each.timings.first_token_ns <= began_ns for each in dispatch.requests]
        for each, decodes in zip(dispatch.requests, decoding, strict=True):
            if not decodes:
                processing_s[each.number - 1] += (ended_ns - began_ns) / 1e9
        if any(decoding):
            batches.append(sum(decoding))
    return processing_s, batches


@contextmanager
def running(processes: int) -> Iterator[RunAll]:
    """A function that runs jobs, in so many processes (1: in this one), and gives their figures in the same order. It
    raises OverError after the given second of the monotonic clock."""
    if processes == 1:
        yield lambda jobs, end_s: _until(end_s, map(run, jobs))
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin_process) as pool:
        try:
            yield lambda jobs, end_s: _until(end_s, pool.map(run, jobs, chunksize=4))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _until(end_s: float, found: Iterator[Figures]) -> list[Figures]:
    kept = []
    for each in found:
        kept.append(each)
        if time.monotonic() > end_s:
            raise OverError
    return kept


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that collects
    torch.set_num_threads(1)


def run_seeds(
    run_all: RunAll,
    jobs: Mapping[Hashable, Callable[[int], RunJob]],
    seeds: Sequence[int],
    end_s: float,
    report: Report,
    say: Say,
) -> Results:
    """Everything with one seed, then with the next, until the time is over. Raises OverError if that was too early for
    an interval."""
    found: Results = {key: [] for key in jobs}
    for number, seed in enumerate(seeds):
        say(f"seed {number + 1} of {len(seeds)}: {len(jobs)} runs")
        try:
            values = run_all([make(seed) for make in jobs.values()], end_s)
        except OverError:
            if number < LEAST_SEEDS:
                raise
            report.leave_out(f"seeds from {seed} on", CUT)
            break
        for key, value in zip(jobs, values, strict=True):
            found[key].append(value)
    return found


def with_intervals(runs: Sequence[Figures]) -> dict[str, float]:
    """The fields of a row: each metric's mean over seeds, and its 95 % interval."""
    fields: dict[str, float] = {}
    for name in METRICS:
        mean, low, high = student([each[name] for each in runs])
        fields |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return fields
