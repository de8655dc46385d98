"""`auras bench fig11`: parallelism without control beside the pipeline (Auras figure 11 and section 6.3).

Measures three things. Chunks per second of seq, par with several numbers of workers, and auras, in interleaved rounds.
The spread of the intervals between outputs when an observation is always available. And the time of a request from its
arrival to its chunk, when requests come at a fixed rate and wait in a queue: aligned (at the rate of auras, at which
par falls behind) and just fit (at the rate of par itself). Random weights and observations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.options import amount, checking_policies, listed, policy_parser
from auras_ros.bench.pipeline.command import SWITCH_S
from auras_ros.bench.policies import auras_plan, build, is_causal, where_built_as_run
from auras_ros.measure.compare import RATE_COLUMNS, Job, Measured, marked, measure, run_jobs
from auras_ros.measure.cores import on_cores, suffix, words
from auras_ros.measure.minutes import OVER, OverError, attempt
from auras_ros.measure.stream import complete, saturate, spread_percent
from auras_ros.pipeline.plan import Plan
from auras_ros.report.picture import COLOURS, legend_below, picture
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, Row, grouped_by, in_columns

DEFAULTS = {"cuda": ("dp", "dp-plus", "openvla-7b", "llava-1.5-7b"), "cpu": ("dp-small",)}
WORKERS = {"cuda": (1, 2, 4, 8, 16), "cpu": (1, 2, 3, 4)}
CAUSAL_WORKERS = 3  # the paper's most for OpenVLA and RT2
STAGES = 8
SLACK = 1.05  # input intervals, times those of the slowest round, so that chance alone builds no queue
RATES: tuple[Column, ...] = (
    ("plan", "{plan}"),
    ("policy", "{policy}"),
    *RATE_COLUMNS,
    ("age ms", "{staleness_ms:.1f}"),
    ("spread %", "{spread_percent:.1f}"),
    ("outputs", "{outputs}"),
    ("", marked),
)
COMPLETION: tuple[Column, ...] = (
    ("completion times", "{plan}"),
    ("policy", "{policy}"),
    ("cores", "{cores}"),
    ("input", "{input}"),
    ("every ms", "{interval_ms:.1f}"),
    ("median ms", "{jct_ms:.1f}"),
    ("first", "{jct_ms_first:.1f}"),
    ("last", "{jct_ms_last:.1f}"),
    ("grows by", "{grows_ms:.1f}"),
    ("out /s", "{rate_hz:.1f}"),
    ("finished", "{finished} of {jobs}"),
)


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    sys.setswitchinterval(SWITCH_S)
    report = Report("fig11")
    run_jobs({name: partial(_measure, name) for name in options.policy}, options, report, progress)
    return finish(report)


def _measure(name: str, job: Job) -> None:
    """Rates, then spreads, then completion times; all on the same warm executors and the same cores."""
    what, cores, options, report = job.what, job.cores, job.options, job.report
    job.say(f"{what}: building")
    built = build(name, steps=options.steps, **where_built_as_run(options.device))
    auras = auras_plan(name, built.policy, options)
    seq = auras.as_mode("seq")
    most = CAUSAL_WORKERS if is_causal(name) else options.concurrency[-1]
    counts = [count for count in options.concurrency if count <= max(most, options.jct_concurrency)]
    pars = {count: seq.as_mode("par", count) for count in dict.fromkeys([*counts, options.jct_concurrency])}
    batched = seq.as_mode("par", auras.pp_generation, together=True)
    measured: Measured | None = None
    try:
        with job.bench(built.policy, most=max(pars)) as bench:
            where = {"policy": name, "device": bench.device.type, "cores": cores}
            measured = measure(bench, job, [seq, auras, batched, *pars.values()])
            plans = [plan for plan in (seq, *pars.values(), batched, auras) if plan in measured]
            for plan in plans:
                with attempt(report, f"{what}, intervals of {plan}"), on_cores(cores):
                    job.say(f"{what}: intervals of {plan}")
                    threads, limit_s = measured.best[plan].threads, _left_s(job)
                    ended_ns = saturate(bench.prepare(plan), bench.feed, options.jobs, limit_s, threads)
                    spread = {"outputs": len(ended_ns), "spread_percent": spread_percent(ended_ns)}
                    figures = measured.figures(plan, seq)
                    report.rows.append({**where, "measure": "rate", **_named(plan), **figures, **spread})
            for plan, kind, rate_hz in _inputs(measured, seq, pars[options.jct_concurrency], auras):
                with attempt(report, f"{what}, completion times of {plan}, {kind}"), on_cores(cores):
                    job.say(f"{what}: completion times, {plan}, {kind}")
                    every_ns, threads = round(SLACK * 1e9 / rate_hz), measured.best[plan].threads
                    done = complete(bench.prepare(plan), bench.feed, every_ns, options.jobs, _left_s(job), threads)
                    named = {**_named(plan), "threads": threads, "input": kind, "plan": str(plan)}
                    report.rows.append({**where, "measure": "jct", **named, **done.fields()})
    finally:
        _sum(report, name, cores, options, measured)


def _inputs(measured: Measured, seq: Plan, par: Plan, auras: Plan) -> list[tuple[Plan, str, float]]:
    """(plan, kind, requests per second) of the streams: each at the rate that it keeps up with, and par also at that of
    auras."""
    streams = [(seq, "just fit", seq), (par, "just fit", par), (par, "aligned", auras), (auras, "aligned", auras)]
    return [
        (plan, kind, measured.slowest_hz(as_fast_as))
        for plan, kind, as_fast_as in streams
        if plan in measured and as_fast_as in measured
    ]


def _left_s(job: Job) -> float:
    """The longest time for a stream: --limit, or the rest of the bench's minutes if that is less. Raises OverError."""
    left_s = min(float(job.options.limit), job.ends.hard_s - time.monotonic())
    if left_s <= 0:
        raise OverError(OVER)
    return left_s


def _named(plan: Plan) -> dict[str, Any]:
    return {"mode": plan.mode, "concurrency": plan.concurrency, "together": plan.together}


def _sum(report: Report, name: str, cores: int, options: argparse.Namespace, measured: Measured | None) -> None:
    """The figures for comparison with the paper's. Those of the first policy are also stored without its name."""
    rows = grouped_by(report.rows, "policy", "cores").get((name, cores), [])
    rates = [row for row in rows if row["measure"] == "rate"]
    auras = next((row for row in rates if row["mode"] == "auras"), None)
    pars = [row for row in rates if row["mode"] == "par" and not row["together"]]
    batched = next((row for row in rates if row["together"]), None)
    best = max(pars, key=lambda row: row["rate_hz"], default=None)
    found: dict[str, float | None] = {
        f"spread_percent_{row['mode']}": row["spread_percent"] for row in rates if row["mode"] != "par"
    }
    for kind, row in (("auras", auras), ("batched", batched), ("best_par", best)):
        found[f"{kind}_over_seq"] = None if row is None else row["speedup"]
    if best is not None:
        found |= {"best_par_concurrency": best["concurrency"], "spread_percent_par": best["spread_percent"]}
        if auras is not None and measured is not None:
            plans = (Plan.parse(row["plan"]) for row in (auras, best))
            found["auras_over_best_par"] = measured.figures(*plans)["speedup"]
    for row in rows:
        if row["measure"] == "jct":
            input_ = f"_{row['input'].replace(' ', '_')}" if row["mode"] == "par" else ""
            found[f"jct_ms_{row['mode']}{input_}"] = row["jct_ms"]
    one, other = found.get("jct_ms_seq"), found.get("jct_ms_par_just_fit")
    if one and other:
        found["jct_par_just_fit_over_seq"] = other / one
        found["jct_par_concurrency"] = options.jct_concurrency
    known = {each: value for each, value in found.items() if value is not None}
    ending = suffix(cores, options.cores)
    report.summary |= {f"{each}_{key(name)}{ending}": value for each, value in known.items()}
    if name == options.policy[0]:
        report.summary |= {f"{each}{ending}": value for each, value in known.items()}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = policy_parser("fig11", __doc__, DEFAULTS, STAGES)
    parser.add_argument("--concurrency", type=listed(int), help="par's concurrency (1,2,3,4; on a GPU 1,2,4,8,16)")
    parser.add_argument("--jct-concurrency", type=int, default=2, help="par's concurrency for completion times (2)")
    parser.add_argument("--jobs", type=int, default=40, help="requests of each stream, outputs of each spread (40)")
    parser.add_argument("--limit", type=amount, default=60.0, help="maximum duration of one stream, s (60)")
    options = parser.parse_args(argv)
    with checking_policies(parser, options, DEFAULTS) as kind:
        options.concurrency = sorted(set(options.concurrency or WORKERS[kind]))
        if options.jobs < 3 or not options.limit > 0:
            raise ValueError("--jobs must be at least 3, and --limit above 0")
        for count in (*options.concurrency, options.jct_concurrency):
            Plan("quick", "par", concurrency=count)
    return options


def table(report: Report) -> str:
    """Rates with the spread of intervals, then completion times."""
    rates = [row for row in report.rows if row["measure"] == "rate"]
    jct = [row for row in report.rows if row["measure"] == "jct"]
    return with_paper(report, [*in_columns(rates, RATES), "", *in_columns(jct, COMPLETION)])


def draw(report: Report, path: Path) -> None:
    """For the first policy and number of cores: rate over par's workers, completion times, spreads."""
    rows = next(iter(grouped_by(report.rows, "policy", "cores").values()), [])
    rates, jct = ([row for row in rows if row["measure"] == measure] for measure in ("rate", "jct"))
    where = f"{rows[0]['policy']} on {rows[0]['device']}, {words(rows[0]['cores'])} for each" if rows else ""
    title = f"{where}, random weights" if rows else "nothing was measured"
    with picture(path, title, 3) as axes:
        pars = sorted(
            (row for row in rates if row["mode"] == "par" and not row["together"]), key=lambda row: row["concurrency"]
        )
        axes[0].plot([r["concurrency"] for r in pars], [r["rate_hz"] for r in pars], "o-", color=COLOURS["par"])
        for row in rates:
            if row["mode"] != "par" or row["together"]:
                style = {"color": COLOURS[row["mode"]], "linestyle": ":" if row["together"] else "--"}
                axes[0].axhline(row["rate_hz"], label=_label(row), **style)
        axes[0].set(title="chunks per second over par's concurrency", xlabel="concurrency", ylim=(0, None))
        axes[0].set_xticks([r["concurrency"] for r in pars])
        legend_below(axes[0], columns=4)
        _bars(axes[1], [(f"{r['mode']}\n{r['input']}", r["mode"], r["jct_ms"]) for r in jct], "completion, median ms")
        spreads = [(_label(row), row["mode"], row["spread_percent"]) for row in rates]
        _bars(axes[2], spreads, "spread of output intervals, % of the mean")


def _label(row: Row) -> str:
    if row["mode"] != "par":
        return str(row["mode"])
    return f"batch\nof {row['concurrency']}" if row["together"] else f"par {row['concurrency']}"


def _bars(axes: Any, bars: Sequence[tuple[str, str, float | None]], title: str) -> None:
    known = [(label, mode, value) for label, mode, value in bars if value is not None]
    axes.bar([b[0] for b in known], [b[2] for b in known], color=[COLOURS[b[1]] for b in known], width=0.6)
    axes.set_title(title)
