"""Rates of several plans of one policy in interleaved rounds, after checking that they compute the same.

`executors` measures a window and `rounds` interleaves windows. This module adds plans of any family, each in its best
form on the same cores, its ratio to seq within every round, and which rates were disturbed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from auras_ros.measure.cores import threads_tried
from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant, control_of, forms
from auras_ros.measure.job import Job
from auras_ros.measure.minutes import OVER, OverError
from auras_ros.measure.rounds import Rates, Rounds
from auras_ros.measure.same import check_same
from auras_ros.pipeline.plan import Plan

LEAST_WINDOWS = 3  # needed for a spread
APART, SAME = 0.2, 0.05  # tolerated shares of the median: quartiles of one plan's windows; two plans of the same work


@dataclass(frozen=True)
class Measured:
    """The results of a bench's rounds. best: the form in which each plan ran, without those that failed. difference:
    the result of `check_same`."""

    rates: Rates
    best: Mapping[Plan, Variant]
    bench: Bench
    said: Mapping[Variant, str]  # notes on disturbed rates
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
            "disturbed": form in self.said,
        }


def measure(bench: Bench, job: Job, plans: Sequence[Plan]) -> Measured:
    """Check the first plan, seq, against the second, then measure all; the report names those that fail. Raises
    RuntimeError if the two differ or seq gives no rate, OverError if seq had no time to give one."""
    difference = check_same(bench, plans[0], plans[1]) if len(plans) > 1 else 0.0
    rounds = Rounds(bench, job.what, job.options, job.ends, job.say)
    tried = threads_tried(bench.cores, bench.device.type)
    kinds = {str(plan): forms(plan, tried, bench.cores) for plan in plans}
    best = {plan: kinds[str(plan)][0] for plan in plans}
    if any(len(each) > 1 for each in kinds.values()):
        _, found = rounds.trial(kinds)
        best = {plan: found[str(plan)] for plan in plans if str(plan) in found}
    rates: Rates = {}
    try:
        for so_far in rounds.contest(list(best.values())):
            rates = so_far
    finally:
        rounds.tell(job.report)
    seq = best.get(plans[0])
    if OVER in {rounds.failed.get(form) for form in kinds[str(plans[0])]}:
        raise OverError
    if seq not in rates:
        raise RuntimeError(f"{plans[0]} gave no rate: there is nothing to compare with")
    said = disturbed(rates, seq)
    job.report.disturb(job.what, said.values())
    return Measured(rates, best, bench, said, difference)


SPEEDUP_COLUMNS = (("x seq", "{speedup:.2f}"), ("quartiles", "{speedup_low:.2f} to {speedup_high:.2f}"))
RATE_COLUMNS = (("cores", "{cores}"), ("chunks/s", "{rate_hz:.2f}"), *SPEEDUP_COLUMNS)  # of `Measured.figures`


def marked(row: Mapping[str, Any]) -> str:
    """Mark rows measured on a busy machine."""
    return "disturbed" if row["disturbed"] else ""


def ratio(rates: Mapping[Variant, Sequence[float]], over: Variant, under: Variant) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of the ratio within each round: what slows a round slows both."""
    low, middle, high = np.percentile(np.divide(rates[over], rates[under]), [25, 50, 75])
    return float(low), float(middle), float(high)


def disturbed(rates: Mapping[Variant, Sequence[float]], seq: Variant | None) -> dict[Variant, str]:
    """Which rates were measured while something else used the machine, and the evidence: windows of one variant that
    differ too much, or par with one worker at another rate than seq, although it does the same work."""
    said: dict[Variant, str] = {}
    for variant, values in rates.items():
        low, middle, high = np.percentile(values, [25, 50, 75])
        if len(values) >= LEAST_WINDOWS and high - low > APART * middle:
            said[variant] = (
                f"{variant.label}: windows of the same plan differ by {(high - low) / middle:.0%} (quartiles)"
            )
    if seq in rates:
        assert seq is not None
        control = control_of(seq)
        if control in rates:
            over = ratio(rates, control, seq)[1]
            if abs(over - 1) > SAME:
                word = "faster" if over > 1 else "slower"
                text = f"par with one worker (the same work) is {abs(over - 1):.0%} {word} than seq"
                said[seq] = said[control] = text
    return said
