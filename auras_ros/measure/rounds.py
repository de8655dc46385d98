"""Interleaved rounds: a window of each variant, one after another, in a new random order every round.

Nothing else runs meanwhile, and a ratio is taken within a round, so that what slows the machine slows both sides. A
variant that fails is dropped, with its reason, and the others continue.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant
from auras_ros.measure.minutes import FAILURES, OVER, Ends
from auras_ros.report.result import Report, Say

TRIAL_ROUNDS = 3
TRIAL_SHARE = 1 / 3  # share of the time for trials
Rates = dict[Variant, list[float]]


@dataclass
class Rounds:
    """options: rounds, length (of a window), seed. failed: why a variant has no rates; aside: the same for a variant
    that was tried, if another one of its kind has rates."""

    bench: Bench
    name: str
    options: argparse.Namespace
    ends: Ends
    say: Say
    failed: dict[Variant, str] = field(default_factory=dict)
    aside: dict[Variant, str] = field(default_factory=dict)

    def trial(self, candidates: Mapping[str, Sequence[Variant]]) -> tuple[Rates, dict[str, Variant]]:
        """A few rounds of every variant of every kind. Returns all rates, and the fastest variant of each kind.

        A variant with less than half the rate of its kind's best in the first round is not tried again: two threads on
        a busy machine can be 25 times slower than one.
        """
        order = random.Random(self.options.seed)
        rates: Rates = {form: [] for forms in candidates.values() for form in forms}
        going, out = list(rates), dict[Variant, str]()
        rounds, now_s = min(TRIAL_ROUNDS, self.options.rounds), time.monotonic()
        soft_s = now_s + TRIAL_SHARE * (self.ends.soft_s - now_s)
        for number in range(rounds):
            if number and time.monotonic() > soft_s:
                break
            new = self._round(f"trying ({number + 1} of {rounds})", going, order, out, first=not number)
            for variant, rate in (new or {}).items():
                rates[variant].append(rate)
            going = [form for forms in candidates.values() for form in _hopeful(forms, rates, out)]
        best = {}
        for kind, forms in candidates.items():
            hopeful = _hopeful(forms, rates, out)
            if hopeful:
                best[kind] = max(hopeful, key=lambda form: median(rates[form]))
            where = self.aside if hopeful else self.failed
            where |= {form: out[form] for form in forms if form in out}
        return {form: values for form, values in rates.items() if values}, best

    def contest(self, variants: Sequence[Variant]) -> Iterator[Rates]:
        """Rounds of all variants, until there are enough or the time is over. After each round it yields the rates of
        all rounds so far, of the variants that have not failed."""
        order, going = random.Random(self.options.seed), list[Variant]()
        for variant in variants:
            if time.monotonic() > self.ends.hard_s:
                self.failed[variant] = OVER
                continue
            self.say(f"{self.name}: warming up {variant.label}")
            try:
                self.bench.prepare(variant.plan)
                going.append(variant)
            except FAILURES as error:
                self.failed[variant] = str(error)
        rates: Rates = {variant: [] for variant in going}
        for number in range(self.options.rounds):
            if not going or (number and time.monotonic() > self.ends.soft_s):
                return
            what = f"round {number + 1} of {self.options.rounds}"
            new = self._round(what, going, order, self.failed, first=not number)
            if new is None:
                return
            going = [variant for variant in going if variant in new]
            rates = {variant: [*rates[variant], new[variant]] for variant in going}
            yield rates

    def tell(self, report: Report) -> None:
        """Report what was not measured, and why. Lack of time is not a failure."""
        for variant, why in {**self.failed, **self.aside}.items():
            note = report.leave_out if why == OVER or variant in self.aside else report.fail
            note(f"{self.name}, {variant.label}", why)

    def _round(
        self, what: str, going: Sequence[Variant], order: random.Random, out: dict[Variant, str], first: bool
    ) -> dict[Variant, float] | None:
        """The rate of each in one window; `out` maps each variant without a rate to the reason. If the bench's minutes
        end in the middle: of the first round what was measured, of a later one None, as rounds are compared as a
        whole."""
        found: dict[Variant, float] = {}
        for variant in order.sample(list(going), len(going)):
            if time.monotonic() > self.ends.hard_s:
                if not first:
                    return None
                out[variant] = OVER
                continue
            self.say(f"{self.name}: {what}, {variant.label}")
            try:
                rate = self.bench.rate(variant, self.options.length)
            except FAILURES as error:
                out[variant] = str(error)
                continue
            if rate:
                found[variant] = rate
            else:
                out[variant] = f"no two chunks in {self.options.length.limit_s:g} s"
        return found


def _hopeful(forms: Sequence[Variant], rates: Rates, out: Mapping[Variant, str]) -> list[Variant]:
    measured = [form for form in forms if rates[form] and form not in out]
    best = max((rates[form][0] for form in measured), default=0.0)
    return [form for form in measured if rates[form][0] >= best / 2]
