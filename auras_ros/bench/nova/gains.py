"""What Nova gains on the best baseline, rate by rate, and the largest and smallest of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from auras_ros.bench.nova.contenders import BASELINES, OURS, PAPER_SETTINGS, Contender
from auras_ros.bench.nova.runs import Figures, Results
from auras_ros.report.statistics import student
from auras_ros.report.table import Row

COMPARED = ("mean_e2e_s", "max_e2e_s", "throughput_hz")
GAIN_RATES = (0.3, 0.6)  # beyond, vision and prefill cannot follow for long (table V)


def best(found: Results, rate: float, metric: str, contenders: Collection[Contender]) -> Contender:
    """The one with the best mean of a metric at a rate."""
    sign = -1 if metric == "throughput_hz" else 1
    return min(contenders, key=lambda each: sign * _mean(found[rate, each], metric))


def gain_rows(found: Results, rate: float, family: str) -> list[dict[str, Any]]:
    """A scheduler's figures over the best baseline's, whose settings are chosen for this rate, this metric and these
    traces; over the best of those with the paper's settings; and over the best static split. ratio_of_means; ratio: the
    mean over traces, with its interval, as all are run on the same ones."""
    tried = [each for which, each in found if which == rate and each.family in BASELINES]
    static = [each for which, each in found if which == rate and each.family == "static"]
    groups = {"best": tried, "paper": [each for each in tried if each in PAPER_SETTINGS], "static": static}
    mine = [each for which, each in found if which == rate and each.family == family]
    own = {"best": mine, "paper": [Contender(family)], "static": mine}
    return [
        {"measure": "gain", "rate": rate, "scheduler": family, "settings": settings, "metric": metric}
        | _over(best(found, rate, metric, own[settings]), best(found, rate, metric, group), found, rate, metric)
        for settings, group in groups.items()
        for metric in COMPARED
        if group
    ]


def _over(mine: Contender, baseline: Contender, found: Results, rate: float, metric: str) -> dict[str, Any]:
    own, its = found[rate, mine], found[rate, baseline]
    ratio, low, high = student([one[metric] / other[metric] for one, other in zip(own, its, strict=True)])
    of_means = _mean(own, metric) / _mean(its, metric)
    ratios = {"ratio_of_means": of_means, "ratio": ratio, "ratio_low": low, "ratio_high": high}
    return {"setting": mine.name, "baseline": baseline.name, **ratios, "n": len(own)}


def _mean(runs: Sequence[Figures], metric: str) -> float:
    return float(np.mean([each[metric] for each in runs]))


def gain_summary(rows: Sequence[Row], ours: str = OURS) -> dict[str, float]:
    """Of the rows of a whole run. mean_e2e_gain, max_e2e_gain: Nova's largest at GAIN_RATES, as the paper gives it;
    throughput_ratio: its smallest. worst_mean_e2e_gain: of our own rule, the smallest over all rates, and the lowest
    end of an interval. With an ending: our own rule's, on baselines with the paper's settings, on static splits."""
    found: dict[str, float] = {}
    compared = {"": ("nova", "best"), "_ours": (ours, "best")}
    compared |= {"_paper_settings": ("nova", "paper"), "_on_static": ("nova", "static")}
    for ending, (scheduler, settings) in compared.items():
        of = {metric: _chosen(rows, scheduler, settings, metric, GAIN_RATES) for metric in COMPARED}
        for metric, name in (("mean_e2e_s", "mean_e2e_gain"), ("max_e2e_s", "max_e2e_gain")):
            if of[metric]:
                found[name + ending] = max(1 - row["ratio_of_means"] for row in of[metric])
        if of["throughput_hz"]:
            found[f"throughput_ratio{ending}"] = min(row["ratio_of_means"] for row in of["throughput_hz"])
    for settings, ending in (("best", ""), ("static", "_on_static")):
        if whole := _chosen(rows, ours, settings, "mean_e2e_s"):
            found[f"worst_mean_e2e_gain{ending}"] = min(1 - row["ratio"] for row in whole)
            found[f"worst_mean_e2e_gain{ending}_low"] = min(1 - row["ratio_high"] for row in whole)
    return found


def _chosen(
    rows: Sequence[Row], scheduler: str, settings: str, metric: str, rates: tuple[float, float] = (0, np.inf)
) -> list[Row]:
    wanted = {"scheduler": scheduler, "settings": settings, "metric": metric}
    inside = [row for row in rows if row["measure"] == "gain" and rates[0] <= row["rate"] <= rates[1]]
    return [row for row in inside if all(row[name] == value for name, value in wanted.items())]
