"""The search for the quickest way of each shape (VaLoRA 4.3.2 and algorithm 2), on this machine.

The range of shapes is limited by memory, tokens grow by steps, then come ranks and ways: each is profiled and the best
kept. The paper steps tokens by 32; here they double, as the look-up takes the nearest by ratio. Ways that are clearly
slower are dropped after a few windows, and the others are measured again, in several places in memory: where factors
lie can make one of them quicker.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from auras_ros.bench.lora.shapes import CaseRun, LoraCase
from auras_ros.bench.lora.timing import CaseWindows, near_best
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import FixedWay
from auras_ros.kernels.lora_ways import WAYS
from auras_ros.measure.minutes import Ends
from auras_ros.report.result import Report, Say

TRIES, PLACES = 3, 2  # rounds of all ways; places in memory of those near the best


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
    entries = dict[LoraShape, str]()
    for case in in_time("search", todo, report, say, ends):
        run = CaseRun(case, options.seed)
        if rates := _profile(run, options, report, ends):
            best = max(rates, key=lambda way: rates[way])
            entries[run.shape] = best
            report.rows.append(_row(case, options.cores, best, rates))
    return entries


def _profile(run: CaseRun, options: argparse.Namespace, report: Report, ends: Ends) -> dict[str, float]:
    """Way -> layers per second."""
    ways, few = [way for way in options.ways if run.case.fits(way, options.memory_mib)], copy.copy(options)
    few.rounds = TRIES
    rates = _windows(run, options).contest(ways, few, report, ends)
    near = near_best(rates, WAYS)
    finer = defaultdict[str, list[float]](list)
    elsewhere = [CaseRun(run.case, options.seed) for _ in range(PLACES if len(near) > 1 else 0)]
    for each in elsewhere:
        for way, values in _windows(each, options).contest(near, options, report, ends, finer=True).items():
            finer[way] += values
    rates |= finer
    return {way: median(values) for way, values in rates.items()}


def _windows(run: CaseRun, options: argparse.Namespace) -> CaseWindows:
    return CaseWindows(run, {name: FixedWay(way) for name, way in WAYS.items()}, options.set_decodes)


def _row(case: LoraCase, cores: int, best: str, rates: dict[str, float]) -> dict[str, Any]:
    us = {f"{way}_us": 1e6 / rate for way, rate in rates.items()}
    return {**vars(case), "cores": cores, "way": best, **us}
