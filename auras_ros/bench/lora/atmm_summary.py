"""What is made of the rounds: each shape's rows, and the figures over all shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from auras_ros.bench.lora.baselines import BASELINES
from auras_ros.bench.lora.shapes import LoraCase
from auras_ros.bench.lora.timing import over_round_means
from auras_ros.kernels.lora_ways import WAYS
from auras_ros.report.table import Row, grouped_by

ATMM = "atmm"
CASE = ("layer", "phase", "tokens", "adapters", "rank")


def case_rows(
    case: LoraCase,
    cores: int,
    chosen: str,
    rates: Mapping[str, Sequence[float]],
    layer_us: Mapping[str, Sequence[float]],
    ratio: float,
) -> list[dict[str, Any]]:
    """A row for each contender. rates: of all rounds; layer_us: how long a layer took in each run.
    ratio: of ATMM to the shape's best way (`best_ratio`), from rounds of its own."""
    rows = []
    for name, values in rates.items():
        took = layer_us[name]
        times = {"us": 1e6 / median(values), "mean_us": float(np.mean(took))}
        times |= {f"p{at}_us": float(np.percentile(took, at)) for at in (50, 90, 95)}
        row = {**vars(case), "cores": cores, "operator": name, **times, "runs": len(took), "rounds": len(values)}
        row["atmm_speedup"] = median(np.divide(rates[ATMM], values).tolist())
        if name == ATMM:
            row |= {"way": chosen, "best_ratio": ratio, "first_ratio": ratio}
        rows.append(row)
    return rows


def best_ratio(rates: Mapping[str, Sequence[float]]) -> float:
    """ATMM's rate over that of the best way for this shape. Even rounds name the best for odd ones, and the reverse:
    the fastest of many equal ways in the same rounds would be one that was lucky."""
    halves = [slice(0, None, 2), slice(1, None, 2)]
    found = list[float]()
    ways = over_round_means({name: values for name, values in rates.items() if name in WAYS})
    for naming, judged in (halves, halves[::-1]):
        best = max(ways, key=lambda name: median(ways[name][naming]))
        found.append(median(np.divide(rates[ATMM][judged], rates[best][judged]).tolist()))
    return sum(found) / 2


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """worst_ratio: the smallest `best_ratio`; first_ratio, mean_ratio: the smallest and the mean of the first ones.
    gain_over_single: over the one way that is best for all shapes. over_X: over a baseline, and over_X_decode in
    decodes alone. All geometric means over the shapes."""
    by = {name: [row for row in rows if row["operator"] == name] for name in (ATMM, *WAYS, *BASELINES)}
    shapes = len(by[ATMM])
    gains = {name: geometric_mean(row["atmm_speedup"] for row in by[name]) for name in WAYS if len(by[name]) == shapes}
    first = [row["first_ratio"] for row in by[ATMM]]
    found = {"shapes": float(shapes), "worst_ratio": min(row["best_ratio"] for row in by[ATMM])}
    found |= {"first_ratio": min(first), "mean_ratio": geometric_mean(first)}
    found |= {"gain_over_single": min(gains.values())} if gains else {}
    found |= {f"over_{_key(name)}": gain for name, gain in gains.items()}
    for name in BASELINES:
        for suffix, some in (("", by[name]), ("_decode", [row for row in by[name] if row["phase"] == "decode"])):
            if some:
                found[f"over_{name}{suffix}"] = geometric_mean(row["atmm_speedup"] for row in some)
    own = _fluctuation(by[ATMM])
    found["fluctuation_percent_atmm"] = 100 * own
    for name in BASELINES:
        if by[name]:
            found[f"fluctuation_percent_{name}"] = 100 * _fluctuation(by[name])
            found[f"fluctuation_over_{name}"] = _fluctuation(by[name]) / own
    return found


def single(rows: Sequence[Row]) -> str:
    """The one way that is best for all shapes."""
    names = grouped_by([row for row in rows if row["operator"] in WAYS], "operator")
    whole = max(map(len, names.values()))
    gains = {
        name: geometric_mean(row["atmm_speedup"] for row in some)
        for (name,), some in names.items()
        if len(some) == whole
    }
    return str(min(gains, key=lambda name: gains[name]))


def _fluctuation(rows: Sequence[Row]) -> float:
    """By how much the 95th percentile of a shape's times is above the median (figure 18): the mean over the shapes."""
    return float(np.mean([row["p95_us"] / row["p50_us"] - 1 for row in rows])) or 1e-9


def _key(name: str) -> str:
    return name.replace("-", "_")
