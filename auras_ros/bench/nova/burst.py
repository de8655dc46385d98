"""`auras bench nova-burst`: Nova and its baselines under bursts, and how Nova's split follows one (Nova figures 14 and
15).

Arrivals of an on/off modulated Poisson process: requests come nine times as often in a burst, of 10 s in the mean, as
between bursts, 30 s in the mean. As in the paper one trace is scaled to give several rates. The paper's own trace is
private and ran on an RTX 4090, of which the text has no times: the profile here is nova-load's. The baselines have the
settings that are best under Poisson arrivals at 0.6 requests a second, on traces of the same seeds. Intervals are 95 %
by Student's t over the seeds, ratios are taken within a trace.
"""

from __future__ import annotations

import argparse
import random
from functools import partial
from pathlib import Path

import numpy as np

from auras_ros.bench.figures.paper import FIGURE_ONLY, PaperFigure, beside_ours
from auras_ros.bench.nova import load_show
from auras_ros.bench.nova.contenders import BASELINES, OURS, Contender, baselines
from auras_ros.bench.nova.gains import best, gain_rows, gain_summary
from auras_ros.bench.nova.load_virtual import load_row
from auras_ros.bench.nova.options import run_options
from auras_ros.bench.nova.runs import (
    OPTIONS,
    Results,
    RunAll,
    answer_tokens,
    jobs_of,
    poisson,
    run_seeds,
    running,
)
from auras_ros.bench.nova.timeline import around_peak, by_units, forwards_of, pending_steps
from auras_ros.engine.simulation import Arrival, simulate
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.report.picture import BLUE, GREEN, ORANGE, legend_below, logarithmic, picture
from auras_ros.report.result import Report, Say
from auras_ros.report.table import Column, in_columns

RATES = (0.3, 0.4, 0.5, 0.6, 0.7)
TUNED_AT = 0.6
TIMELINE_AT, MARGIN_S = 0.3, 5.0
BASE_HZ, ON_S, OFF_S, ON_TIMES, OFF_TIMES = 0.4, 10.0, 30.0, 3.0, 1 / 3  # a quarter of the time at three times the rate
NOVA = Contender("nova")
PAPER = (
    PaperFigure("decode's SMs while requests accumulate", "fewer", "", "V-E", "units_fewest"),
    PaperFigure("vision while requests accumulate", "quicker", "", "V-E", "vision_quicker"),
    PaperFigure("E2E under bursts", "better than the baselines", "", "V-F", "mean_e2e_gain"),
    PaperFigure("throughput under bursts", "comparable", "", "V-F", "throughput_ratio"),
    PaperFigure("each point", FIGURE_ONLY, "", "figures 14 and 15"),
)


def run(argv: list[str], progress: Say) -> Report:
    options = run_options("nova-burst", __doc__, argv, 20.0, RATES)
    report = Report("nova-burst", more={"profile": options.profile})
    with running(options.processes) as run_all:
        parts: dict[str, MeasureStep] = {
            "figure 14": lambda _: _timeline(report, options),
            "figure 15": partial(_compare, report, options, run_all, progress),
        }
        run_parts(report, options.minutes, parts)
    return report


def bursty(rate_hz: float, requests: int, seed: int) -> tuple[Arrival, ...]:
    """One seed gives the same intervals for every rate, but for their scale, and the same answers."""
    chance, at_s, on, trace = random.Random(seed), 0.0, False, list[Arrival]()
    ends_s = chance.expovariate(1 / OFF_S)
    while len(trace) < requests:
        next_s = at_s + chance.expovariate(BASE_HZ * (ON_TIMES if on else OFF_TIMES))
        if next_s > ends_s:  # without memory: what would have come is drawn again at the other rate
            at_s, on = ends_s, not on
            ends_s += chance.expovariate(1 / (ON_S if on else OFF_S))
            continue
        at_s = next_s
        trace.append(Arrival(at_s * BASE_HZ / rate_hz, answer_tokens(chance)))
    return tuple(trace)


def _timeline(report: Report, options: argparse.Namespace) -> None:
    """Figure 14: one trace."""
    trace = bursty(TIMELINE_AT * options.rate_hz, options.requests, options.seed)
    served, forwards = simulate(NOVA.make(options.setup), options.setup.profile, trace, OPTIONS)
    steps = pending_steps(served)
    all_forwards = forwards_of(forwards, steps)
    rows = by_units(all_forwards)
    report.rows += [{"measure": "timeline", "rate": TIMELINE_AT, **row, "cores": 1} for row in rows]
    report.more["timeline"] = around_peak(steps, all_forwards, MARGIN_S)
    gaps_s = np.diff([each.at_s for each in trace])
    report.summary["interval_variation"] = float(np.std(gaps_s) / np.mean(gaps_s))  # 1: a Poisson process
    report.summary["pending_most"] = max(pending for _, pending in steps)
    if rows:
        fewest, most = rows[0], rows[-1]
        report.summary |= {"units_fewest": fewest["units"], "units_most": most["units"]}
        report.summary["vision_quicker"] = most["vision_ms"] / fewest["vision_ms"]


def _compare(report: Report, options: argparse.Namespace, run_all: RunAll, say: Say, ends: Ends) -> None:
    """Figure 15."""
    seeds = range(options.seed, options.seed + options.seeds)
    tried = baselines(options.setup, ranged=options.profile == "a6000")
    say("choosing the baselines' settings")
    poisson_jobs = jobs_of(options, options.setup, [TUNED_AT], tried, poisson)
    tuned = tuned_of(run_seeds(run_all, poisson_jobs, seeds, ends.soft_s, report, say))
    families = list(dict.fromkeys(("nova", OURS)))
    everyone = [*(Contender(family) for family in families), *tuned, Contender("interleaved")]
    jobs = jobs_of(options, options.setup, options.rates, everyone, bursty)
    found = run_seeds(run_all, jobs, seeds, ends.soft_s, report, say)
    report.rows += [load_row(options, key, runs) for key, runs in found.items()]
    gains = [row for rate in options.rates for family in families for row in gain_rows(found, rate, family)]
    own = [row for row in gains if row["settings"] == "best"]
    report.rows += [{**row, "cores": options.processes} for row in own]
    report.summary |= gain_summary(own)


def tuned_of(found: Results) -> list[Contender]:
    """Of each family of baselines the setting with the best mean E2E."""
    (rate,) = {rate for rate, _ in found}
    families = [[each for _, each in found if each.family == family] for family in BASELINES]
    return [best(found, rate, "mean_e2e_s", family) for family in families]


def table(report: Report) -> str:
    columns: tuple[Column, ...] = (
        ("figure 14: decode's units", "{units}"),
        ("pending", "{pending:.1f}"),
        ("vision ms", "{vision_ms:.0f}"),
        ("n", "{visions}"),
        ("decode ms beside it", "{decode_ms:.1f}"),
        ("n", "{decodes}"),
    )
    timeline = [row for row in report.rows if row["measure"] == "timeline"]
    parts = [
        in_columns(timeline, columns),
        *load_show.parts(report.rows),
        beside_ours([each.row(report.summary) for each in PAPER], "Nova"),
        [f"{name:36} {value:8.4f}" for name, value in report.summary.items()],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def draw(report: Report, path: Path) -> None:
    """Figure 14: pending requests and decode's units, times of forwards; figure 15: mean E2E over the rate. Raises
    ValueError if nothing was simulated."""
    if "timeline" not in report.more:
        raise ValueError("no burst was simulated: there is nothing to draw")
    shown = report.more["timeline"]
    with picture(path, "bursts", 3) as (split, times, rates):
        at_s, pending = zip(*shown["pending"], strict=True)
        split.step(at_s, pending, where="post", color=ORANGE, label="pending requests")
        beside = [each for each in shown["forwards"] if each[0] == "vision" and each[3] is not None]
        split.plot([each[1] for each in beside], [each[3] for each in beside], ".", color=BLUE, label="decode's units")
        split.set_title("a burst: pending, and decode's units beside vision (14)")
        for stage, colour in (("vision", GREEN), ("decode", BLUE)):
            own = [each for each in shown["forwards"] if each[0] == stage]
            values = [1e3 * (each[2] - each[1]) for each in own]
            times.plot([each[1] for each in own], values, ".", ms=3, color=colour, label=stage)
        logarithmic(times)
        times.set_title("forwards, ms (14)")
        for axes in (split, times):
            axes.set_xlabel("s", fontsize=8)
        load_show.draw_metric(rates, load_show.load_rows(report.rows), "mean_e2e_s", "mean E2E under bursts, s (15)")
        for axes in (split, times, rates):
            legend_below(axes, columns=3)
