"""Rows and summary of `auras bench peers-vlm`, from the windows of its rounds.

A ratio is taken within a round, so that a slow period of the machine affects both sides. Where a library was measured
in several forms, the better one counts: the better one over all rounds, not in each. Of ours, the one with the better
throughput counts for the times too; of theirs, the better one for each. A peer as a server on each core has ratios of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.peers_vlm.contest import CLOSED, POISSON, ModelWindows, Window
from auras_ros.bench.peers_vlm.sides import OURS, TRANSFORMERS, VLLM, is_each_core, library
from auras_ros.bench.peers_vlm.workload import describe
from auras_ros.report.result import key

PERCENTILES = {"p50": 50, "p99": 99, "max": 100}
THROUGHPUT = ("requests_per_s", "requests_per_s_low", "requests_per_s_high", "tokens_per_s")
TIMES = tuple(f"{time}_{name}_ms" for time in ("ttft", "tbt", "e2e") for name in PERCENTILES)
MEANS = ("ttft_mean_ms", "tbt_mean_ms", "e2e_mean_ms")
FIGURES = (*THROUGHPUT, *TIMES, *MEANS, "cpu_s_per_request", "client_cpu_s_per_request")
OVER_VLLM, OVER_TRANSFORMERS, TBT_OVER_VLLM = (
    "throughput_over_vllm", "throughput_over_transformers", "tbt_p99_over_vllm",
)  # fmt: skip

PER_CORE = "one_process_per_core"


def rows(measured: ModelWindows, sides: Sequence[str], versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """One for each load and side. Figures are None where it was not measured, with the reason in `why`."""
    made = []
    for load in (CLOSED, POISSON):
        for side in sides:
            windows = measured.windows.get(load, {}).get(side, [])
            row: dict[str, Any] = {
                "model": measured.model,
                "load": load,
                "side": side,
                "requests": describe(measured.shape),
                "rate_hz": measured.rates_hz.get(load),
                "cores": measured.cores,
                "dtype": "float32",
                "rounds": len(windows),
                "n": sum(len(each.load.answers) for each in windows),
                "start_s": measured.start_s.get(side),
                **(figures(windows) if windows else dict.fromkeys(FIGURES)),
            }
            if library(side) in versions:
                row["version"] = versions[library(side)]
            if not windows:
                row["why"] = measured.failed.get(side, "not begun")
            made.append(row)
    return made


def figures(windows: Sequence[Window]) -> dict[str, float]:
    """Throughput: the median of the rounds, with the lowest and the highest; times: over all requests of all rounds."""
    rates = [throughput(each) for each in windows]
    answers = [answer for each in windows for answer in each.load.answers]
    tokens = [sum(answer.tokens for answer in each.load.answers) / each.load.span_s for each in windows]
    times = {
        "ttft": [answer.ttft_s for answer in answers],
        "tbt": [between for answer in answers for between in answer.between_s],
        "e2e": [answer.e2e_s for answer in answers],
    }
    made = dict(zip(THROUGHPUT, (median(rates), min(rates), max(rates), median(tokens)), strict=True))
    for time, values in times.items():
        made[f"{time}_mean_ms"] = 1e3 * float(np.mean(values))
        for name, percent in PERCENTILES.items():
            made[f"{time}_{name}_ms"] = 1e3 * float(np.percentile(values, percent))
    made["cpu_s_per_request"] = sum(each.cpu_s for each in windows) / len(answers)
    made["client_cpu_s_per_request"] = sum(each.load.client_cpu_s for each in windows) / len(answers)
    return made


def throughput(window: Window) -> float:
    """Requests per second."""
    return window.load.rate_hz


def tbt_p99(window: Window) -> float:
    """Seconds between tokens, the 99th percentile."""
    return float(np.percentile([each for answer in window.load.answers for each in answer.between_s], 99))


def summary(found: Iterable[tuple[ModelWindows, bool]]) -> dict[str, float]:
    """found: each model, and whether it is tiny. Each ratio of each model, and under its plain name the worst one, over
    transformers of the tiny models alone; and the ratios over a peer's servers on each core."""
    made: dict[str, float] = {}
    counted: dict[str, list[float]] = {OVER_VLLM: [], OVER_TRANSFORMERS: [], TBT_OVER_VLLM: []}
    for measured, tiny in found:
        closed, poisson = (measured.windows.get(load, {}) for load in (CLOSED, POISSON))
        mine = best_form(closed, OURS, throughput, most=True)
        for name, windows, other, figure, most in (
            (OVER_VLLM, closed, VLLM, throughput, True),
            (OVER_TRANSFORMERS, closed, TRANSFORMERS, throughput, True),
            (TBT_OVER_VLLM, poisson, VLLM, tbt_p99, False),
        ):
            ratio = over_best(windows, mine, other, figure, most)
            if ratio is not None:
                made[f"{name}_{key(measured.model)}"] = ratio
                if tiny or name != OVER_TRANSFORMERS:
                    counted[name].append(ratio)
            ratio = over_best(windows, mine, other, figure, most, each_core=True)
            if ratio is not None:
                made[f"{name}_{PER_CORE}_{key(measured.model)}"] = ratio
    worst = {name: max(values) if name == TBT_OVER_VLLM else min(values) for name, values in counted.items() if values}
    return worst | made


def over_best(
    windows: Mapping[str, Sequence[Window]],
    mine: str | None,
    other: str,
    figure: Callable[[Window], float],
    most: bool,
    each_core: bool = False,
) -> float | None:
    """The figure of the side `mine` over that of another library's best form, the median of the rounds. most: whether
    more is better. each_core: of its servers on each core instead."""
    best = best_form(windows, other, figure, most, each_core)
    if mine is None or best is None or not windows.get(mine):
        return None
    return median(figure(ours) / figure(theirs) for ours, theirs in zip(windows[mine], windows[best], strict=False))


def best_form(
    windows: Mapping[str, Sequence[Window]],
    of: str,
    figure: Callable[[Window], float],
    most: bool,
    each_core: bool = False,
) -> str | None:
    """The side with the best median of a library's; None if none was measured."""
    forms = {
        name: median(map(figure, rounds))
        for name, rounds in windows.items()
        if rounds and library(name) == of and is_each_core(name) == each_core
    }
    return (max if most else min)(forms, key=lambda name: forms[name]) if forms else None
