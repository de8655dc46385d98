"""`auras bench nova-load --profile a6000`: Nova and its baselines under Poisson arrivals (Nova figures 10, 11 and 12,
table V).

The engine and its schedulers run on a virtual clock; forwards take the times of a profile: the paper's RTX A6000 as its
text describes it (bench/nova/a6000.py), or a file's. Every scheduler gets the same traces. First Nova alone must take
table V's times for vision and prefill within 10 %. Then come the baselines and Nova, each with all of its settings: for
every rate and every metric the best one counts. Multi-Stream's slowdown is known of two kernels alone (table IV), so it
is simulated with a milder and a harder one too. Static splits, which the paper compares apart (figure 13), are no
baseline of the gains but stand beside them in the same way. Intervals are 95 % by Student's t over the seeds; ratios
are taken within a trace.

With --device cpu the same schedulers run on this machine's cores: `auras bench nova-load --device cpu --help`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from auras_ros.bench.nova import a6000, sensitivity, table5
from auras_ros.bench.nova.contenders import OURS, Contender, DeviceSetup, baselines, family_of, statics
from auras_ros.bench.nova.gains import GAIN_RATES, gain_rows, gain_summary
from auras_ros.bench.nova.load_show import draw, table
from auras_ros.bench.nova.options import add_runs, check_runs
from auras_ros.bench.nova.runs import Results, RunAll, jobs_of, run_seeds, running, with_intervals
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least
from auras_ros.measure.minutes import Ends, run_parts
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("nova-load", more={"profile": options.profile})
    with running(options.processes) as run_all:
        parts = {"nova-load": partial(_measure, report, options, run_all, progress)}
        if options.sensitivity:
            parts["sensitivity"] = partial(_vary, report, options, run_all, progress)
        run_parts(report, options.minutes, parts)
    return report


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = bench_parser("nova-load", __doc__)
    add_runs(parser)
    parser.add_argument("--sensitivity", action="store_true", help="each parameter of a6000 20 %% less and more, too")
    parser.add_argument("--sensitivity-seeds", type=int, default=3, help="traces for each of them (3)")
    add_minutes(parser, 60.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, sensitivity_seeds=2)
    check_runs(parser, options)
    if options.sensitivity and options.profile != "a6000":
        parser.error(f"--sensitivity: the parameters are those of a6000, got --profile {options.profile}")
    options.varied = [rate for rate in options.rates if GAIN_RATES[0] <= rate <= GAIN_RATES[1]]
    if options.sensitivity and not options.varied:
        parser.error("--sensitivity: it needs a rate from {:g} to {:g}".format(*GAIN_RATES))
    return options


def _measure(report: Report, options: argparse.Namespace, run_all: RunAll, say: Say, ends: Ends) -> None:
    paper = options.profile == "a6000"
    everyone = [each for family in dict.fromkeys(("nova", OURS)) for each in family_of(family, options.setup)]
    everyone += [*baselines(options.setup, ranged=paper), *statics(options.setup), Contender("interleaved")]
    jobs = jobs_of(options, options.setup, options.rates, everyone)
    seeds = range(options.seed, options.seed + options.seeds)
    first = {key: job for key, job in jobs.items() if key[1] == Contender("nova")}
    found = run_seeds(run_all, first, seeds, ends.soft_s, report, say)
    if paper and not _as_table5(report, found, options.processes):
        return
    rest = {key: job for key, job in jobs.items() if key not in first}
    found |= run_seeds(run_all, rest, seeds, ends.soft_s, report, say)
    seen = min(map(len, found.values()))
    found = {key: runs[:seen] for key, runs in found.items()}
    report.rows += [load_row(options, key, runs) for key, runs in found.items()]
    gains = [
        row
        for rate in options.rates
        for family in dict.fromkeys(("nova", OURS))
        for row in gain_rows(found, rate, family)
    ]
    report.rows += [{**row, "cores": options.processes} for row in gains]
    report.summary |= gain_summary(gains) | _nova_summary(found)


def _as_table5(report: Report, found: Results, cores: int) -> bool:
    """Adds table V's rows. False if the profile takes other times than the paper's device: what follows would say
    nothing about that."""
    rows = [table5.row(rate, runs) for (rate, _), runs in found.items() if rate in a6000.RATES_HZ]
    report.rows += [{**row, "cores": cores} for row in rows]
    if not rows:
        return True
    error = report.summary["table5_worst_error"] = table5.worst_error(rows)
    if error >= table5.MOST_ERROR:
        report.fail("table V", f"a mean processing time differs by {error:.0%} from the paper's: no baseline was run")
        return False
    return True


def load_row(options: argparse.Namespace, key: tuple[float, Contender], runs: Sequence[Any]) -> dict[str, Any]:
    rate, contender = key
    where = {"measure": "load", "profile": options.setup.profile.device, "rate": rate}
    who = {"rate_hz": rate * options.rate_hz, "scheduler": contender.family, "setting": contender.name}
    size = {"requests": options.requests, "n": len(runs), "cores": options.processes}
    return {**where, **who, **size, **with_intervals(runs)}


def _nova_summary(found: Results) -> dict[str, float]:
    """Nova's own: the largest decode batch over the rates (III-C2) and the longest time between tokens (V-A5)."""
    own = [run for (_, each), runs in found.items() if each == Contender("nova") for run in runs]
    return {
        "nova_decode_batch_most": max(run["decode_batch"] for run in own),
        "nova_tbt_ms_max": max(run["tbt_ms_max"] for run in own),
    }


def _vary(report: Report, options: argparse.Namespace, run_all: RunAll, say: Say, ends: Ends) -> None:
    seeds = range(options.seed, options.seed + options.sensitivity_seeds)

    def found(setup: DeviceSetup, say: Say) -> Results:
        everyone = [*family_of("nova", setup), *baselines(setup, ranged=True)]
        jobs = jobs_of(options, setup, options.varied, everyone)
        return run_seeds(run_all, jobs, seeds, ends.soft_s, report, say)

    sensitivity.measure(report, options.varied, options.processes, found, say)
