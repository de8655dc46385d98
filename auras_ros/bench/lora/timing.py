"""Windows of a case's contenders: how many layers a second, and how long each took.

Ways that multiply with joined copies of the factors make them again whenever another set of adapters is in the batch.
That is no part of a window; its time is measured before, and each layer of a window is charged its share: all of it in
a prefill, whose prompts are in one forward, and in a decode what `set_decodes` forwards have in common.

Those that are near the best are measured again, in many short windows: the machine's speed wanders within seconds, and
the shorter two windows lie apart, the less it does between them.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import geometric_mean, median

import numpy as np

from auras_ros.bench.lora.shapes import CaseRun
from auras_ros.kernels.lora_table import WayChooser
from auras_ros.measure.minutes import Ends
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.window import Length
from auras_ros.report.result import Report

WARM_UPS, COPIED = 3, 3
NEAR, FINER = 0.85, 4  # share of the best's rate from which a way is near; how many times as many, shorter rounds


class CaseWindows:
    """layer_us: of each contender, of a layer in every run of every window."""

    def __init__(
        self, run: CaseRun, contenders: Mapping[str, WayChooser], set_decodes: int = 1, ready: Collection[str] = ()
    ) -> None:
        """set_decodes: for which a set of adapters stays. ready: contenders that are charged for no copies."""
        self._run, self._contenders, self._ready = run, contenders, ready
        self._forwards = set_decodes if run.case.phase == "decode" else 1
        self._charged_us = dict[str, float]()
        self.layer_us: defaultdict[str, list[float]] = defaultdict(list)

    def contest(
        self, names: Sequence[str], options: argparse.Namespace, report: Report, ends: Ends, finer: bool = False
    ) -> dict[str, list[float]]:
        """The rates of each in interleaved rounds; what fails is in the report."""
        some = copy.copy(options)
        if finer:
            some.rounds, some.length = options.rounds * FINER, Length(1, options.length.seconds / FINER)
        rounds: Rounds[str] = Rounds(str(self._run.case), self.rate, some, ends, lambda text: None)
        rounds.contest(names, self.prepare)
        rounds.tell(report)
        return rounds.rates

    def prepare(self, name: str) -> None:
        """Makes the copies of the factors too. Raises RuntimeError if the contender is not equal to the reference."""
        chooser, reference = self._contenders[name], self._contenders["segmented"]
        apart = self._run.check(reference, chooser)
        if not apart <= 1e-4:  # nor a NaN
            raise RuntimeError(f"differs from the reference by {apart:.1e}")
        for _ in range(WARM_UPS):
            self._run.forward(chooser)
        self._charged_us[name] = 0.0 if name in self._ready else self._copying_us(chooser) / self._forwards

    def _copying_us(self, chooser: WayChooser) -> float:
        """Of making a layer's joined copies."""
        first_ns, second_ns = list[int](), list[int]()
        for _ in range(COPIED):
            dropped = [factors.drop_joined() for _, _, factors in self._run.layers]
            if not any(dropped):
                return 0.0
            first_ns.append(self._forward_ns(chooser))
            second_ns.append(self._forward_ns(chooser))
        return max(min(first_ns) - min(second_ns), 0) / 1e3 / len(self._run.layers)

    def _forward_ns(self, chooser: WayChooser) -> int:
        began_ns = time.perf_counter_ns()
        self._run.forward(chooser)
        return time.perf_counter_ns() - began_ns

    def rate(self, name: str, length: Length) -> float:
        """Layers per second, by the lower quartile of the window's runs: what else the machine does interrupts some."""
        chooser, layers, took = self._contenders[name], len(self._run.layers), list[float]()
        charged_us = self._charged_us[name]
        self._run.forward(chooser)  # what the one before left in the caches is not this one's
        end_ns = time.perf_counter_ns() + round(1e9 * min(length.seconds, length.limit_s))
        now_ns = 0
        while now_ns < end_ns or len(took) < length.chunks:
            took.append(self._forward_ns(chooser) / 1e3 / layers + charged_us)
            now_ns = time.perf_counter_ns()
        self.layer_us[name] += took
        return 1e6 / float(np.percentile(took, 25))


def near_best(
    rates: Mapping[str, Sequence[float]], ways: Collection[str], of: Callable[[Sequence[float]], float] = median
) -> list[str]:
    """Of these ways, those whose rate is near the best's median. of: a way's rate, of those of its rounds."""
    best = max((median(values) for name, values in rates.items() if name in ways), default=0.0)
    return [name for name, values in rates.items() if name in ways and of(values) >= NEAR * best]


def over_round_means(rates: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Each rate over the geometric mean of its round."""
    means = [geometric_mean(each) for each in zip(*rates.values(), strict=True)]
    return {name: [value / mean for value, mean in zip(values, means, strict=True)] for name, values in rates.items()}
