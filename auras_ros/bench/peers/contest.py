"""Chunks per second of several contenders, ours and others', in interleaved rounds of one run.

Contenders are timed one after another, in a new random order every round. A ratio is taken within a round, so a slow
period of the machine affects both. Before that, all contenders are checked to compute the same chunk.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import Feed
from auras_ros.measure.forms import Variant
from auras_ros.measure.minutes import CUT, FAILURES, OVER, Ends, OverError
from auras_ros.measure.window import Length
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched
from auras_ros.report.result import Report, Say

PERCENTILES = (10, 50, 90)
WINDOW_S = 600.0  # maximum: a published policy on one core
Rates = Mapping[str, Sequence[float]]


class UnequalError(RuntimeError):
    """Contenders that do not compute the same."""


@dataclass(frozen=True)
class RateSource:
    """rate: chunks per second in one window with an observation always available, without warm-up; None if this
    contender cannot run here, with the reason in `why`. fields: of its row besides the rates, such as the largest
    difference of its outputs."""

    name: str
    rate: Callable[[Length], float] | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    why: str | None = None


def ours(bench: Bench, plan: Plan, fields: Mapping[str, Any]) -> RateSource:
    """seq or auras of a policy of ours, on one thread."""
    return RateSource(plan.mode, lambda length: bench.rate(Variant(plan), length), {"plan": str(plan), **fields})


def chunk_of(executor: Executor, seen: Latched) -> Tensor:
    """The actions of request 0 of an executor with one worker, from a constant observation: [1, chunk, channels], on
    the host."""
    (worker,) = executor.workers
    executor.reset(first_request=0)
    for _ in range(executor.plan.latency_frames + 1):
        worker.begin(seen, seen.origin.mono_ns)
        worker.run()
        emission = worker.end(seen.origin.mono_ns)
        if emission is not None:
            return emission.actions.cpu()
    raise RuntimeError(f"{executor.plan}: no chunk after {executor.plan.latency_frames + 1} frames")


def our_chunks(bench: Bench, examples: Sequence[tuple[Tensor, Tensor]], plan: Plan) -> Tensor:
    """A plan's chunk of each observation, which is constant until its request is done: [examples, chunk, channels]."""
    executor = bench.make(plan)
    try:
        feed = Feed(list(examples))
        return torch.cat([chunk_of(executor, feed(at)) for at in range(1, len(examples) + 1)])
    finally:
        executor.close()


def rounds(
    part: str,
    contenders: Sequence[RateSource],
    options: argparse.Namespace,
    ends: Ends,
    failed: dict[str, str],
    progress: Say,
) -> Iterator[Rates]:
    """Yields after each round the rates of all rounds so far, by name, of the contenders that have not failed; `failed`
    gets the reasons of the others. No further round begins after the soft end, and no window lasts beyond the hard end:
    a first round that is cut keeps its finished windows, a later one is dropped, as only whole rounds are compared."""
    running = [each for each in contenders if each.rate is not None]
    order = random.Random(options.seed)
    rates: dict[str, list[float]] = {each.name: [] for each in running}
    for number in range(options.rounds):
        if not running or (number and time.monotonic() > ends.soft_s):
            return
        new: dict[str, float] = {}
        for each in order.sample(running, len(running)):
            left_s = ends.hard_s - time.monotonic()
            if left_s <= 0 and number:
                return
            if left_s <= 0:
                failed[each.name] = OVER
                continue
            length = Length(options.chunks, options.seconds, min(WINDOW_S, left_s))
            progress(f"{part}: round {number + 1} of {options.rounds}, {each.name}")
            assert each.rate is not None
            try:
                rate = each.rate(length)
            except FAILURES as error:
                failed[each.name] = str(error)
                continue
            except OverError:
                rate = 0.0
            if rate:
                new[each.name] = rate
            elif left_s < WINDOW_S and number:
                return
            elif left_s < WINDOW_S:
                failed[each.name] = CUT
            else:
                failed[each.name] = f"no two chunks in {length.limit_s:g} s"
        running = [each for each in running if each.name in new]
        rates = {name: [*rates[name], rate] for name, rate in new.items()}
        yield rates


def tell(part: str, failed: Mapping[str, str], report: Report) -> None:
    """Report the contenders that were not measured, and why. Lack of time is not a failure."""
    for name, why in failed.items():
        (report.leave_out if why in (OVER, CUT) else report.fail)(f"{part}, {name}", why)


def rows(
    contenders: Sequence[RateSource], rates: Rates, failed: Mapping[str, str], base: str, common: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One for each contender. chunks_per_s, p10, p90: over its n windows; ratio: over `base` in the same rounds. None
    if it was not measured."""
    made = []
    for each in contenders:
        row = {**common, "contender": each.name, **each.fields, **dict.fromkeys(_FIGURES)}
        if rates.get(each.name):
            found = [*spread(rates[each.name]), len(rates[each.name])]
            over = spread(np.divide(rates[each.name], rates[base]).tolist()) if rates.get(base) else (None,) * 3
            row |= dict(zip(_FIGURES, [*found, *over], strict=True))
        why = failed.get(each.name, each.why)
        if why is not None:
            row["why"] = why
        made.append(row)
    return made


_FIGURES = ("p10", "chunks_per_s", "p90", "n", "ratio_p10", "ratio", "ratio_p90")


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """10th percentile, median and 90th percentile."""
    low, middle, high = np.percentile(values, PERCENTILES)
    return float(low), float(middle), float(high)


def summary(part: str, rates: Rates, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """The speedup of the first over the second of each pair of contenders that ran, median and percentiles."""
    found: dict[str, float] = {}
    for over, under in pairs:
        if rates.get(over) and rates.get(under):
            low, middle, high = spread(np.divide(rates[over], rates[under]).tolist())
            name = f"{part}_{over}_over_{under}".replace(" ", "_")
            found |= {name: middle, f"{name}_p10": low, f"{name}_p90": high}
    return found
