"""One job for each subject and number of cores of a bench that compares plans, and how their rates are compared.

`executors` measures a window and `rounds` interleaves windows. This module checks that plans of one policy, of any
family, compute the same, and measures each in its best form on the same cores: its ratio to seq within every round, and
which rates were disturbed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from auras_ros.measure.cores import threads_tried, words
from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant, control_of, forms
from auras_ros.measure.minutes import CUT, OVER, Ends, MeasureStep, OverError, run_parts
from auras_ros.measure.rounds import Key, Rounds
from auras_ros.measure.same import check_same
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Report, Say
from auras_ros.report.statistics import spread
from auras_ros.report.table import Row

LEAST_WINDOWS = 3  # needed for a spread
Rates = dict[Variant, list[float]]
APART, SAME = 0.2, 0.05  # tolerated shares of the median: quartiles of one plan's windows; two plans of the same work


@dataclass(frozen=True)
class Job:
    """One subject on one number of cores. what: its name in the report's notes. ends: its deadlines."""

    what: str
    cores: int
    options: argparse.Namespace
    report: Report
    say: Say
    ends: Ends

    def bench(self, policy: LoadedPolicy, most: int = 1) -> closing[Bench]:
        """A policy's executors on these cores, par with at most `most` workers; closed at the end of a `with` block."""
        return closing(Bench(policy, self.options.device, self.options.seed, most=most, cores=self.cores))


Subjects = Mapping[str, Callable[[Job], None]]


def run_jobs(subjects: Subjects, options: argparse.Namespace, report: Report, say: Say, **others: MeasureStep) -> None:
    """Run every subject on the first number of cores (the fair one, in case time is short), then on the next one, then
    `others`."""
    torch.set_num_threads(1)

    def part(measure: Callable[[Job], None], what: str, cores: int) -> MeasureStep:
        return lambda ends: measure(Job(what, cores, options, report, say, ends))

    parts: dict[str, MeasureStep] = {}
    for cores in options.cores:
        for name, measure in subjects.items():
            what = f"{name} on {words(cores)}"
            parts[what] = part(measure, what, cores)
    run_parts(report, options.minutes, parts | others)


@dataclass(frozen=True)
class Measured:
    """The results of a bench's rounds. best: the form in which each plan ran, without those that failed. difference:
    the result of `check_same`."""

    rates: Rates
    best: Mapping[Plan, Variant]
    bench: Bench
    notes: Mapping[Variant, str]  # on disturbed rates
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
            "disturbed": form in self.notes,
        }


def measure(bench: Bench, job: Job, plans: Sequence[Plan]) -> Measured:
    """Check the first plan, seq, against the second, then measure all; the report names those that fail. Raises
    RuntimeError if the two differ or seq gives no rate, OverError if seq had no time to give one."""
    difference = check_same(bench, plans[0], plans[1]) if len(plans) > 1 else 0.0
    rounds = Rounds(job.what, bench.rate, job.options, job.ends, job.say)
    tried = threads_tried(bench.cores, bench.device.type)
    kinds = {str(plan): forms(plan, tried, bench.cores) for plan in plans}
    best = {plan: kinds[str(plan)][0] for plan in plans}
    if any(len(each) > 1 for each in kinds.values()):
        _, found = rounds.trial(kinds)
        best = {plan: found[str(plan)] for plan in plans if str(plan) in found}
    try:
        rounds.contest(list(best.values()), lambda form: bench.prepare(form.plan))
    finally:
        rounds.tell(job.report)
    rates, seq = rounds.rates, best.get(plans[0])
    if {OVER, CUT} & {rounds.failed.get(form) for form in kinds[str(plans[0])]}:
        raise OverError
    if seq not in rates:
        raise RuntimeError(f"{plans[0]} gave no rate: there is nothing to compare with")
    notes = disturbed(rates, seq)
    job.report.disturb(job.what, notes.values())
    return Measured(rates, best, bench, notes, difference)


SPEEDUP_COLUMNS = (("x seq", "{speedup:.2f}"), ("quartiles", "{speedup_low:.2f} to {speedup_high:.2f}"))
RATE_COLUMNS = (("cores", "{cores}"), ("chunks/s", "{rate_hz:.2f}"), *SPEEDUP_COLUMNS)  # of `Measured.figures`


def marked(row: Row) -> str:
    """Mark rows measured on a busy machine."""
    return "disturbed" if row["disturbed"] else ""


def ratio(
    rates: Mapping[Key, Sequence[float]], over: Key, under: Key, low: float = 25, high: float = 75
) -> tuple[float, float, float]:
    """A lower percentile, the median and an upper one of the ratio within each round: what slows a round slows both."""
    return spread(np.divide(rates[over], rates[under]).tolist(), low, high)


def disturbed(rates: Mapping[Variant, Sequence[float]], seq: Variant | None) -> dict[Variant, str]:
    """Which rates were measured while something else used the machine, and the evidence: windows of one variant that
    differ too much, or par with one worker at another rate than seq, although it does the same work."""
    notes: dict[Variant, str] = {}
    for variant, values in rates.items():
        low, middle, high = spread(values)
        if len(values) >= LEAST_WINDOWS and high - low > APART * middle:
            notes[variant] = f"{variant}: windows of the same plan differ by {(high - low) / middle:.0%} (quartiles)"
    if seq is not None and {seq, control_of(seq)} <= rates.keys():
        over = ratio(rates, control_of(seq), seq)[1]
        if abs(over - 1) > SAME:
            apart = f"{abs(over - 1):.0%} {'faster' if over > 1 else 'slower'}"
            text = f"par with one worker (the same work) is {apart} than seq"
            notes |= dict.fromkeys((seq, control_of(seq)), text)
    return notes
