"""The search for the quickest way of each shape (VaLoRA 4.3.2 and algorithm 2), on this machine.

The range of shapes is limited by memory, tokens grow by steps, then come ranks and ways: each is profiled and the best
kept. The paper steps tokens by 32; here they double, as the look-up takes the nearest by ratio. A first pass over all
shapes drops the ways that are slower in each of a few windows. Two more passes measure the others: what else the
machine does, and where factors lie in memory, makes one or another of them quicker, and is not the same minutes later.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from auras_ros.bench.lora.shapes import CaseRun, LoraCase
from auras_ros.bench.lora.timing import CaseWindows, near_best, over_round_means
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import FixedWay
from auras_ros.kernels.lora_ways import WAYS
from auras_ros.measure.minutes import Ends
from auras_ros.report.result import Report, Say

TRIES, PASSES = 3, 2  # rounds of all ways; passes over those near the best


@dataclass
class Profile:
    """rates: way -> layers per second in each round, of each pass; the first has all ways, the others those near."""

    case: LoraCase
    shape: LoraShape
    rates: list[dict[str, list[float]]]

    @cached_property
    def near(self) -> list[str]:
        return near_best(self.rates[0], WAYS, of=max)

    @property
    def median_us(self) -> dict[str, float]:
        """Way -> of a layer, by the later passes if it is in one."""
        pooled = self.rates[0] | _pooled(self.rates[1:])
        return {way: 1e6 / median(values) for way, values in pooled.items()}

    @property
    def best(self) -> str:
        """The way that is furthest above its rounds' means. Of one pass alone if no other one was in time."""
        compared = [over_round_means({way: each[way] for way in self.near if way in each}) for each in self.rates]
        ratios = _pooled(compared[1:]) or compared[0]
        return max(ratios, key=lambda way: median(ratios[way]))


def in_time(part: str, todo: Sequence[LoraCase], report: Report, say: Say, ends: Ends) -> Iterator[LoraCase]:
    """These cases until ends.soft_s; the report says how many are left out."""
    for number, case in enumerate(todo):
        if time.monotonic() > ends.soft_s:
            report.leave_out(part, f"{len(todo) - number} of {len(todo)} shapes: the bench's minutes were over")
            return
        say(f"{part}: {number + 1} of {len(todo)}, {case}")
        yield case


def search(
    todo: Sequence[LoraCase], options: argparse.Namespace, report: Report, say: Say, ends: Ends
) -> dict[LoraShape, str]:
    """The table's entries; the report gets a row for each case."""
    few, profiles = copy.copy(options), list[Profile]()
    few.rounds = TRIES
    for case in in_time("search, all ways", todo, report, say, ends):
        ways, run = [way for way in options.ways if case.fits(way, options.memory_mib)], CaseRun(case, options.seed)
        if rates := _windows(run, options).contest(ways, few, report, ends):
            profiles.append(Profile(case, run.shape, [rates]))
    close = {each.case: each for each in profiles if len(each.near) > 1}
    try:
        for number in range(PASSES):
            for case in in_time(f"search, near the best, pass {number + 1}", list(close), report, say, ends):
                windows = _windows(CaseRun(case, options.seed), options)
                close[case].rates.append(windows.contest(close[case].near, options, report, ends, finer=True))
    finally:  # an interrupt costs no rows
        for each in profiles:
            us = {f"{way}_us": value for way, value in each.median_us.items()}
            report.rows.append({**vars(each.case), "cores": options.cores, "way": each.best, **us})
    return {each.shape: each.best for each in profiles}


def _pooled(passes: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    return {way: [value for each in passes for value in each.get(way, ())] for each in passes for way in each}


def _windows(run: CaseRun, options: argparse.Namespace) -> CaseWindows:
    return CaseWindows(run, {name: FixedWay(way) for name, way in WAYS.items()}, options.set_decodes)
