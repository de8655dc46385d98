"""`auras bench nova-adaptive`: what the split of the device decides, and what adapting it brings (Nova figures 6 and
13, and the steps of V-A5).

Figure 6 by the equations alone: latency and throughput of every pair of splits when nobody waits, those that no other
pair beats in both, and their split by the rate that they sustain. Figure 13 on a virtual clock with the times of a
profile: the adaptive split beside static ones, the pairs through which equation 5 goes and two with more units for
decode; the paper does not name its own. Then the same with other steps of equation 5. All on the same traces; intervals
are 95 % by Student's t over the seeds, ratios are taken within a trace.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from auras_ros.bench.figures.paper import FIGURE_ONLY, PaperFigure, beside_ours
from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.contenders import TOKENS, Contender, DeviceSetup, statics
from auras_ros.bench.nova.options import run_options
from auras_ros.bench.nova.runs import Results, RunAll, jobs_of, run_seeds, running, with_intervals
from auras_ros.engine.planner import all_ideal, pareto
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.report.picture import BLUE, GREEN, GREY, ORANGE, legend_below, logarithmic, picture, whiskers
from auras_ros.report.result import Report, Say
from auras_ros.report.statistics import student
from auras_ros.report.table import Column, Row, grouped_by, in_columns

NOVA = Contender("nova")
BETAS = (2, 4, 6, 8)  # units of the paper's 84 (V-A5)
PAPER = (
    PaperFigure("S_0 beside vision", a6000.BY_VISION, "SMs", "V-A5", "s0_vision"),
    PaperFigure("S_0 beside prefill", a6000.BY_PREFILL, "SMs", "V-A5", "s0_prefill"),
    PaperFigure("S_min", a6000.S_MIN, "SMs", "V-A5", "s_min"),
    PaperFigure("decode's SMs over the rate", "fall about linearly", "", "III-C2", "frontier_r2_vision"),
    PaperFigure("adaptive against static splits", "always better", "", "V-E", "adaptive_over_best_static_worst"),
    PaperFigure("mean E2E over steps of 2 to 8 SMs", "stable", "", "V-A5", "beta_spread"),
    PaperFigure("each point", FIGURE_ONLY, "", "figures 6 and 13"),
)


def run(argv: list[str], progress: Say) -> Report:
    options = run_options("nova-adaptive", __doc__, argv, 20.0)
    report = Report("nova-adaptive", more={"profile": options.profile})
    with running(options.processes) as run_all:
        parts: dict[str, MeasureStep] = {
            "figure 6": lambda _: _splits(report, options),
            "figure 13": partial(_static, report, options, run_all, progress),
            "beta": partial(_betas, report, options, run_all, progress),
        }
        run_parts(report, options.minutes, parts)
    return report


def _splits(report: Report, options: argparse.Namespace) -> None:
    """Figure 6: rows for the frontier of the pairs that keep S_min; all pairs beside them."""
    setup: DeviceSetup = options.setup
    plan = setup.plan()
    front = pareto(all_ideal(setup.profile, TOKENS, plan.least))
    for each in front:
        split = {"by_vision": each.by_vision, "by_prefill": each.by_prefill}
        s0 = (each.by_vision, each.by_prefill) == (plan.by_vision, plan.by_prefill)
        found = {"e2e_s": each.e2e_ms / 1e3, "throughput_hz": each.throughput_hz, "s0": s0}
        report.rows.append({"measure": "frontier", "cores": 1, **split, **found})
    pairs = all_ideal(setup.profile, TOKENS)
    report.more["pairs"] = [[each.by_vision, each.by_prefill, each.e2e_ms, each.throughput_hz] for each in pairs]
    report.summary |= {"s0_vision": plan.by_vision, "s0_prefill": plan.by_prefill, "s_min": plan.least}
    rates = [each.throughput_hz for each in front]
    for stage in ("vision", "prefill"):
        report.summary[f"frontier_r2_{stage}"] = _straight(rates, [getattr(each, f"by_{stage}") for each in front])


def _straight(x: Sequence[float], y: Sequence[float]) -> float:
    """The share of y's variance that a straight line explains; 1 if there is none."""
    if len(set(y)) < 2 or len(set(x)) < 2:
        return 1.0
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def _static(report: Report, options: argparse.Namespace, run_all: RunAll, say: Say, ends: Ends) -> None:
    plan = options.setup.plan()
    found = _run(options, [NOVA, *statics(options.setup)], run_all, say, ends, report)
    report.rows += static_rows(found, options.processes)
    report.summary |= static_summary(report.rows, Contender("static", (plan.by_vision, plan.by_prefill)).name)


def _run(
    options: argparse.Namespace, who: Sequence[Contender], run_all: RunAll, say: Say, ends: Ends, report: Report
) -> Results:
    jobs = jobs_of(options, options.setup, options.rates, who)
    return run_seeds(run_all, jobs, range(options.seed, options.seed + options.seeds), ends.soft_s, report, say)


def static_rows(found: Results, cores: int) -> list[dict[str, Any]]:
    """ratio: the adaptive split's mean E2E over this one's, the mean over traces with its interval."""
    rows = []
    for (rate, contender), runs in found.items():
        pairs = zip(found[rate, NOVA], runs, strict=True)
        ratio, low, high = student([own["mean_e2e_s"] / its["mean_e2e_s"] for own, its in pairs])
        where = {"measure": "static", "rate": rate, "split": contender.name, "n": len(runs), "cores": cores}
        rows.append({**where, "ratio": ratio, "ratio_low": low, "ratio_high": high, **with_intervals(runs)})
    return rows


def static_summary(rows: Sequence[Row], s0: str) -> dict[str, float]:
    """Gains of the adaptive split in mean E2E. best_static_worst: the smallest over rates, each with the static split
    that is best there. s0_most: the largest over rates on S_0 as a static split. one_static: on the static split whose
    worst rate is the best one, at that rate: what it costs to keep one split for all rates."""
    static = [row for row in rows if row["measure"] == "static" and row["split"] != NOVA.name]
    by_rate, by_split = grouped_by(static, "rate"), grouped_by(static, "split")
    return {
        "adaptive_over_best_static_worst": min(1 - max(row["ratio"] for row in own) for own in by_rate.values()),
        "adaptive_over_s0_most": max(1 - row["ratio"] for row in by_split[s0,]),
        "adaptive_over_one_static": min(max(1 - row["ratio"] for row in own) for own in by_split.values()),
    }


def _betas(report: Report, options: argparse.Namespace, run_all: RunAll, say: Say, ends: Ends) -> None:
    scale = options.setup.profile.units / a6000.UNITS
    everyone = [Contender("nova", (vision * scale, prefill * scale)) for vision, prefill in product(BETAS, BETAS)]
    found = _run(options, everyone, run_all, say, ends, report)
    for (rate, contender), runs in found.items():
        betas = {"beta_vision": contender.setting[0], "beta_prefill": contender.setting[1]}
        where = {"measure": "beta", "rate": rate, **betas, "n": len(runs), "cores": options.processes}
        report.rows.append({**where, **with_intervals(runs)})
    report.summary["beta_spread"] = max(spread for _, spread in beta_spreads(report.rows))


def beta_spreads(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """For each rate: how much longer the mean E2E is with the worst steps than with the best."""
    groups = grouped_by((row for row in rows if row["measure"] == "beta"), "rate")
    return [(rate, _worst_over_best([row["mean_e2e_s"] for row in own])) for (rate,), own in groups.items()]


def _worst_over_best(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


def table(report: Report) -> str:
    frontier: tuple[Column, ...] = (
        ("figure 6: sustained requests/s", "{throughput_hz:.4f}"),
        ("E2E s", "{e2e_s:.3f}"),
        ("decode's units beside vision", "{by_vision}"),
        ("beside prefill", "{by_prefill}"),
        ("", lambda row: "S_0" if row["s0"] else ""),
    )
    static: tuple[Column, ...] = (
        ("figure 13: rate", "{rate:g}"),
        ("split", "{split}"),
        ("E2E s", "{mean_e2e_s:.2f}"),
        ("95 %", "{mean_e2e_s_low:.2f} to {mean_e2e_s_high:.2f}"),
        ("longest", "{max_e2e_s:.1f}"),
        ("adaptive over it", "{ratio:.3f}"),
        ("95 %", "{ratio_low:.3f} to {ratio_high:.3f}"),
        ("n", "{n}"),
    )
    of = grouped_by(report.rows, "measure")
    spreads = [f"{rate:4g}  {spread:6.1%}" for rate, spread in beta_spreads(report.rows)]
    parts = [
        in_columns(of.get(("frontier",), []), frontier),
        in_columns(of.get(("static",), []), static, left=(0, 1)),
        ["rate  mean E2E with the worst steps of equation 5 over the best", *spreads] if spreads else [],
        beside_ours([each.row(report.summary) for each in PAPER], "Nova"),
        [f"{name:36} {value:8.4f}" for name, value in report.summary.items()],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def draw(report: Report, path: Path) -> None:
    """Figures 6a, 6b and 13. Raises ValueError if nothing was simulated."""
    of = grouped_by(report.rows, "measure")
    if ("static",) not in of:
        raise ValueError("no split was simulated: there is nothing to draw")
    with picture(path, "splits between decode and the other stages", 3) as (pairs, splits, rates):
        _draw_pairs(pairs, report.more["pairs"], of["frontier",])
        for name, colour in (("vision", BLUE), ("prefill", ORANGE)):
            at = [row["throughput_hz"] for row in of["frontier",]]
            units = [row[f"by_{name}"] for row in of["frontier",]]
            splits.plot(at, units, color=colour, label=f"beside {name}", marker="o", ms=3)
        splits.set_xlabel("sustained requests a second", fontsize=8)
        splits.set_title("decode's units on the frontier (6b)")
        for (name,), own in grouped_by(of["static",], "split").items():
            style = {"color": BLUE, "lw": 2.5} if name == NOVA.name else {"lw": 1.0}
            ends = whiskers(own, "mean_e2e_s", "mean_e2e_s_low", "mean_e2e_s_high")
            label = "adaptive" if name == NOVA.name else name
            rates.errorbar([row["rate"] for row in own], [row["mean_e2e_s"] for row in own], ends, label=label, **style)
        logarithmic(rates)
        rates.set_xlabel("requests a second", fontsize=8)
        rates.set_title("mean E2E, s (13)")
        for axes in (pairs, splits, rates):
            legend_below(axes, columns=3)


def _draw_pairs(axes: Any, pairs: Sequence[Sequence[float]], front: Sequence[Row]) -> None:
    axes.plot([each[3] for each in pairs], [each[2] / 1e3 for each in pairs], ".", ms=2, color=GREY, alpha=0.4)
    axes.plot([row["throughput_hz"] for row in front], [row["e2e_s"] for row in front], color=GREEN, label="frontier")
    (s0,) = (row for row in front if row["s0"])
    axes.plot([s0["throughput_hz"]], [s0["e2e_s"]], "*", ms=10, color=ORANGE, label="S_0")
    axes.set_xlabel("sustained requests a second", fontsize=8)
    axes.set_title("E2E of each pair of splits, s (6a)")
