"""Chunks per second of several contenders, ours and others', in interleaved rounds of one run.

Contenders are timed one after another, in a new random order every round. A ratio is taken within a round, so a slow
period of the machine affects both. Before that, all contenders are checked to compute the same chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from auras_ros.device.make import kind_of
from auras_ros.measure.compare import Job, ratio
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import Feed
from auras_ros.measure.forms import Variant
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.same import constant_chunks
from auras_ros.measure.window import Length
from auras_ros.pipeline.plan import Plan
from auras_ros.report.statistics import spread

CHECKED = 3  # observations whose chunks are compared
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


def our_sources(
    bench: Bench, plans: Sequence[Plan], check: Callable[[str, Tensor], Mapping[str, Any]]
) -> list[RateSource]:
    """seq and auras of a policy of ours, warm, on one thread. check: returns the fields of a plan's row from its chunks
    of the first observations, [CHECKED, chunk, channels]; raises UnequalError."""
    made = []
    for plan in plans:
        feed = Feed(bench.feed.examples)
        fields = check(plan.mode, constant_chunks(bench, plan, [feed(at) for at in range(1, CHECKED + 1)]))
        bench.prepare(plan)
        made.append(RateSource(plan.mode, partial(bench.rate, Variant(plan)), {"plan": str(plan), **fields}))
    return made


def compare(
    job: Job, sources: Sequence[RateSource], pairs: Sequence[tuple[str, str]], common: Mapping[str, Any]
) -> None:
    """Writes rows, with ratios to the first source, and the ratios of these pairs to the report; if interrupted, those
    of whole rounds. common: further fields of all rows."""
    options = job.options
    where = {"part": job.what, "shape": options.shape, "device": kind_of(options.device), "cores": job.cores}
    running = {each.name: each.rate for each in sources if each.rate is not None}
    rounds = Rounds[str](job.what, lambda name, length: running[name](length), options, job.ends, job.say)
    try:
        rounds.contest(list(running))
    finally:
        rounds.tell(job.report)
        job.report.rows += rows(sources, rounds.rates, rounds.failed, {**where, "threads": 1, **common})
        job.report.summary |= summary(job.what, rounds.rates, pairs)


def rows(
    sources: Sequence[RateSource], rates: Rates, failed: Mapping[str, str], common: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One for each contender. chunks_per_s, p10, p90: over its n windows; ratio: over the first one in the same rounds.
    None if it was not measured."""
    made, base = [], sources[0].name
    for each in sources:
        row = {**common, "contender": each.name, **each.fields, **dict.fromkeys(_FIGURES)}
        if each.name in rates:
            over = ratio(rates, each.name, base, 10, 90) if base in rates else (None, None, None)
            found = (*spread(rates[each.name], 10, 90), len(rates[each.name]), *over)
            row |= dict(zip(_FIGURES, found, strict=True))
        why = failed.get(each.name, each.why)
        if why is not None:
            row["why"] = why
        made.append(row)
    return made


_FIGURES = ("p10", "chunks_per_s", "p90", "n", "ratio_p10", "ratio", "ratio_p90")


def summary(part: str, rates: Rates, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """The speedup of the first over the second of each pair of contenders that ran, median and percentiles."""
    found: dict[str, float] = {}
    for over, under in pairs:
        if over in rates and under in rates:
            low, middle, high = ratio(rates, over, under, 10, 90)
            name = f"{part}_{over}_over_{under}".replace(" ", "_")
            found |= {name: middle, f"{name}_p10": low, f"{name}_p90": high}
    return found
