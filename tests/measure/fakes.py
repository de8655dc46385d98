"""Rounds of rates that are planted."""

from __future__ import annotations

import argparse
import math

from auras_ros.bench.pipeline.sizes import Comparison
from auras_ros.measure.forms import Variant
from auras_ros.measure.minutes import Ends
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.window import Length
from auras_ros.pipeline.plan import Plan
from tests.bench.registered import NAME

SIZES = Comparison("ddpm16", (1, 2, 8), 0.0, (1, 2, 3), (1, 2), cores=2)


class FakeBench:
    """Rates by label, what fails by label, and a note of what was asked for."""

    def __init__(self, rates: dict[str, float], failures: dict[str, str] | None = None) -> None:
        self.rates, self.failures = rates, failures or {}
        self.asked: list[Variant] = []

    def prepare(self, plan: Plan) -> None:
        pass

    def rate(self, variant: Variant, length: Length) -> float:
        self.asked.append(variant)
        if str(variant) in self.failures:
            raise RuntimeError(self.failures[str(variant)])
        return self.rates.get(str(variant), 1.0)


NEVER = Ends(math.inf, math.inf)


def rounds_of(fake: FakeBench, rounds: int = 4, ends: Ends = NEVER) -> Rounds[Variant]:
    options = argparse.Namespace(rounds=rounds, seed=0, length=Length(chunks=1, seconds=0.0, limit_s=60.0))
    return Rounds(NAME, fake.rate, options, ends, lambda text: None)
