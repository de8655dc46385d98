"""Interleaved rounds: a window of each competitor, one after another, in a new random order every round.

Nothing else runs meanwhile, and a ratio is taken within a round, so that what slows the machine slows both sides. A
competitor that fails is dropped, with its reason, and the others continue.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Generic, TypeVar

from auras_ros.measure.minutes import CUT, FAILURES, OVER, Ends, OverError
from auras_ros.measure.window import Length
from auras_ros.report.result import Report, Say

TRIAL_ROUNDS = 3
TRIAL_SHARE = 1 / 3  # share of the time for trials
Key = TypeVar("Key", bound=Hashable)


@dataclass
class Rounds(Generic[Key]):
    """what: for notes. rate: measures one window of a competitor. options: rounds, length (of a window), seed.

    rates: of all whole rounds of the contest so far, of those that have not failed. failed: why a competitor has no
    rates; aside: the same for one that was tried, if another one of its kind has rates. No window lasts beyond the hard
    end.
    """

    what: str
    rate: Callable[[Key, Length], float]
    options: argparse.Namespace
    ends: Ends
    say: Say
    rates: dict[Key, list[float]] = field(default_factory=dict, init=False)
    failed: dict[Key, str] = field(default_factory=dict, init=False)
    aside: dict[Key, str] = field(default_factory=dict, init=False)

    def trial(self, candidates: Mapping[str, Sequence[Key]]) -> tuple[dict[Key, list[float]], dict[str, Key]]:
        """A few rounds of every competitor of every kind. Returns all rates, and the fastest one of each kind.

        One with less than half the rate of its kind's best in the first round is not tried again: two threads on a busy
        machine can be 25 times slower than one.
        """
        order = random.Random(self.options.seed)
        rates: dict[Key, list[float]] = {key: [] for keys in candidates.values() for key in keys}
        going, out = list(rates), dict[Key, str]()
        rounds, now_s = min(TRIAL_ROUNDS, self.options.rounds), time.monotonic()
        soft_s = now_s + TRIAL_SHARE * (self.ends.soft_s - now_s)
        for number in range(rounds):
            if number and time.monotonic() > soft_s:
                break
            new = self._round(f"trying ({number + 1} of {rounds})", going, order, out, first=not number)
            for key, rate in (new or {}).items():
                rates[key].append(rate)
            going = [key for keys in candidates.values() for key in _hopeful(keys, rates, out)]
        best = {}
        for kind, keys in candidates.items():
            hopeful = _hopeful(keys, rates, out)
            if hopeful:
                best[kind] = max(hopeful, key=lambda key: median(rates[key]))
            where = self.aside if hopeful else self.failed
            where |= {key: out[key] for key in keys if key in out}
        return {key: values for key, values in rates.items() if values}, best

    def contest(self, keys: Sequence[Key], prepare: Callable[[Key], object] = lambda key: None) -> None:
        """Rounds of all competitors, until there are enough or the time is over. prepare: warms one up."""
        order, going = random.Random(self.options.seed), list[Key]()
        for key in keys:
            if time.monotonic() > self.ends.hard_s:
                self.failed[key] = OVER
                continue
            self.say(f"{self.what}: warming up {key}")
            try:
                prepare(key)
                going.append(key)
            except FAILURES as error:
                self.failed[key] = str(error) or repr(error)
        for number in range(self.options.rounds):
            if not going or (number and time.monotonic() > self.ends.soft_s):
                return
            what = f"round {number + 1} of {self.options.rounds}"
            new = self._round(what, going, order, self.failed, first=not number)
            if new is None:
                return
            going = [key for key in going if key in new]
            self.rates = {key: [*self.rates.get(key, ()), new[key]] for key in going}

    def tell(self, report: Report) -> None:
        """Report what was not measured, and why. Lack of time is not a failure."""
        for key, why in {**self.failed, **self.aside}.items():
            note = report.leave_out if why in (OVER, CUT) or key in self.aside else report.fail
            note(f"{self.what}, {key}", why)

    def _round(
        self, what: str, going: Sequence[Key], order: random.Random, out: dict[Key, str], first: bool
    ) -> dict[Key, float] | None:
        """The rate of each in one window; `out` maps each competitor without a rate to the reason. If the minutes end
        in the middle: of the first round what was measured, of a later one None, as only whole rounds are compared."""
        found: dict[Key, float] = {}
        for key in order.sample(list(going), len(going)):
            left_s, limit_s = self.ends.hard_s - time.monotonic(), self.options.length.limit_s
            if left_s <= 0 and not first:
                return None
            if left_s <= 0:
                out[key] = OVER
                continue
            self.say(f"{self.what}: {what}, {key}")
            try:
                rate = self.rate(key, self.options.length._replace(limit_s=min(limit_s, left_s)))
            except FAILURES as error:
                out[key] = str(error) or repr(error)
                continue
            except OverError:
                rate = 0.0
            if rate:
                found[key] = rate
            elif left_s < limit_s and not first:
                return None
            else:
                out[key] = CUT if left_s < limit_s else f"no two chunks in {limit_s:g} s"
        return found


def _hopeful(keys: Sequence[Key], rates: Mapping[Key, Sequence[float]], out: Mapping[Key, str]) -> list[Key]:
    measured = [key for key in keys if rates[key] and key not in out]
    best = max((rates[key][0] for key in measured), default=0.0)
    return [key for key in measured if rates[key][0] >= best / 2]
