"""`auras bench fig11`: parallelism without control beside the pipeline (Auras figure 11 and section 6.3).

Chunks per second of seq, par with several numbers of workers, and auras, in interleaved rounds; how even the intervals
between outputs are when an observation is always at hand; and how long a request takes from its arrival to its chunk
when requests come at a fixed rate and wait in a queue: aligned with auras (as fast as auras takes them; par cannot, and
falls behind) and just fit (as fast as par itself takes them). Random weights and observations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from auras_ros.bench.figures.policies import add_choice, build, chosen, is_causal
from auras_ros.bench.figures.rounds import add_options, check_options, figures, measure, room_as_run
from auras_ros.bench.figures.show import COLOURS, aligned, finish, key, picture, with_paper
from auras_ros.bench.figures.stream import complete, saturate, spread_percent
from auras_ros.bench.options import amount, kind_of, listed
from auras_ros.bench.pipeline import SWITCH_S
from auras_ros.bench.pipeline_rate import Bench
from auras_ros.bench.pipeline_variants import Variant
from auras_ros.evaluate.report import Report
from auras_ros.pipeline.modes import check_plan, family_offset
from auras_ros.pipeline.plan import Plan, PlanError

DEFAULTS = {"cuda": ("dp", "dp-plus", "openvla-7b", "llava-1.5-7b"), "cpu": ("dp-small",)}
WORKERS = {"cuda": (1, 2, 4, 8, 16), "cpu": (1, 2, 3, 4)}
CAUSAL_WORKERS = 3  # the paper's most for OpenVLA and RT2
STAGES = 8
SLACK = 1.05  # input intervals over what the slowest round kept up with, so that chance alone builds no queue
JCT = {  # fields of a stream, and their columns
    "interval_ms": "every ms",
    "jct_ms": "median ms",
    "jct_ms_first": "first",
    "jct_ms_last": "last",
    "grows_ms": "grows by",
    "rate_hz": "out /s",
}
Progress = Callable[[str], None]


def run(argv: list[str], progress: Progress) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_S)
    report = Report("fig11")
    try:
        for name in options.policy:
            _measure(name, options, report, progress)
            _sum(report, name, options.jct_workers, first=name == options.policy[0])
    except KeyboardInterrupt:
        report.more["interrupted"] = "interrupted: what was finished counts"
    return finish("fig11", report)


def _measure(name: str, options: argparse.Namespace, report: Report, progress: Progress) -> None:
    """Rates, then spreads, then completion times; all on the same warm executors."""
    progress(f"{name}: building")
    built = build(name, steps=options.steps, **room_as_run(options.device))
    seq, auras = _plans(name, built.policy, options)
    most = CAUSAL_WORKERS if is_causal(name) else options.workers[-1]
    counts = [count for count in options.workers if count <= max(most, options.jct_workers)]
    pars = {count: seq.as_mode("par", count) for count in dict.fromkeys([*counts, options.jct_workers])}
    bench = Bench(built.policy, options.device, options.seed, most=max(pars))
    where = {"policy": name, "device": bench.device.type}
    try:
        rates = measure(bench, name, [seq, auras, *pars.values()], options, progress)
        found = {plan: figures(rates, plan, seq) for plan in (seq, *pars.values(), auras)}
        for plan, row in found.items():
            progress(f"{name}: intervals of {plan}")
            ended_ns = saturate(bench.prepare(plan), bench.feed, options.jobs, options.limit)
            spread = {"outputs": len(ended_ns), "spread_percent": spread_percent(ended_ns)}
            report.rows.append({**where, "measure": "rate", **_named(plan), **row, **spread})
        par, hz = pars[options.jct_workers], {plan: min(rates[Variant(plan)]) for plan in found}
        inputs = [(seq, "just fit", hz[seq]), (par, "just fit", hz[par]), (par, "aligned", hz[auras])]
        for plan, kind, rate_hz in [*inputs, (auras, "aligned", hz[auras])]:
            progress(f"{name}: completion times, {plan}, {kind}")
            interval_ns = round(SLACK * 1e9 / rate_hz)
            done = complete(bench.prepare(plan), bench.feed, interval_ns, options.jobs, options.limit)
            report.rows.append(
                {**where, "measure": "jct", **_named(plan), "input": kind, "plan": str(plan), **done.fields()}
            )
    finally:
        bench.close()


def _named(plan: Plan) -> dict[str, Any]:
    return {"mode": plan.mode, "workers": plan.workers}


def _plans(name: str, policy: Any, options: argparse.Namespace) -> tuple[Plan, Plan]:
    kind = "quick" if is_causal(name) else f"ddpm{options.steps}"
    stages = policy.steps if is_causal(name) else options.pp_generation
    auras = Plan(kind, "auras", pp_generation=stages, fetch_offset=family_offset(policy))
    check_plan(policy, auras)
    return auras.as_mode("seq"), auras


def _sum(report: Report, name: str, jct_workers: int, first: bool) -> None:
    """The figures that stand beside the paper's; of the first policy also without its name."""
    rows = [row for row in report.rows if row["policy"] == name]
    rates = [row for row in rows if row["measure"] == "rate"]
    seq, auras = (next(row for row in rates if row["mode"] == mode) for mode in ("seq", "auras"))
    best = max((row for row in rates if row["mode"] == "par"), key=lambda row: row["rate_hz"])
    found = {
        "auras_over_seq": auras["speedup"],
        "best_par_over_seq": best["speedup"],
        "auras_over_best_par": auras["rate_hz"] / best["rate_hz"],
        "best_par_workers": best["workers"],
        "spread_percent_seq": seq["spread_percent"],
        "spread_percent_auras": auras["spread_percent"],
        "spread_percent_par": best["spread_percent"],
    }
    for row in rows:
        if row["measure"] == "jct":
            input_ = f"_{row['input'].replace(' ', '_')}" if row["mode"] == "par" else ""
            found[f"jct_ms_{row['mode']}{input_}"] = row["jct_ms"]
    if found["jct_ms_seq"] and found["jct_ms_par_just_fit"]:
        found["jct_par_just_fit_over_seq"] = found["jct_ms_par_just_fit"] / found["jct_ms_seq"]
        found["jct_par_workers"] = jct_workers
    known = {each: value for each, value in found.items() if value is not None}
    report.summary |= {f"{each}_{key(name)}": value for each, value in known.items()}
    report.summary |= known if first else {}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="auras bench fig11", description=__doc__)
    add_choice(parser, DEFAULTS)
    parser.add_argument("--workers", type=listed(int), help="par's counts (1,2,3,4; on a GPU 1,2,4,8,16)")
    parser.add_argument("--jct-workers", type=int, default=2, help="par's count for completion times (2)")
    parser.add_argument("--pp-generation", type=int, default=STAGES, help=f"stages of denoising ({STAGES})")
    parser.add_argument("--jobs", type=int, default=40, help="requests of each stream, outputs of each spread (40)")
    parser.add_argument("--limit", type=amount, default=60.0, help="longest that one stream may take, s (60)")
    add_options(parser)
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in what depends on the device. Ends the process with status 2 for what cannot be measured."""
    check_options(parser, options)
    kind = kind_of(options.device)
    options.policy = chosen(parser, options.policy, kind, DEFAULTS)
    options.workers = sorted(set(options.workers or WORKERS[kind]))
    if options.jobs < 3 or not options.limit > 0:
        parser.error("--jobs must be at least 3, and --limit above 0")
    try:
        for count in (*options.workers, options.jct_workers):
            Plan("quick", "par", workers=count)
        Plan("quick", "auras", pp_generation=options.pp_generation)
    except PlanError as error:
        parser.error(str(error))
    if options.pp_generation > options.steps:
        parser.error(f"--pp-generation: {options.pp_generation} stages for {options.steps} steps")


def table(report: Report) -> str:
    """Rates with the spread of intervals, then completion times."""
    rates = [row for row in report.rows if row["measure"] == "rate"]
    jct = [row for row in report.rows if row["measure"] == "jct"]
    lines = aligned([("plan", "policy", "chunks/s", "x seq", "quartiles", "spread %", "outputs"), *map(_rate, rates)])
    columns = ("completion times", "policy", "input", *JCT.values(), "finished")
    return with_paper("fig11", report, [*lines, "", *aligned([columns, *map(_jct, jct)])])


def _rate(row: Mapping[str, Any]) -> tuple[str, ...]:
    quartiles = f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"
    rates = (f"{row['rate_hz']:.2f}", f"{row['speedup']:.2f}", quartiles)
    return (row["plan"], row["policy"], *rates, _number(row["spread_percent"]), str(row["outputs"]))


def _jct(row: Mapping[str, Any]) -> tuple[str, ...]:
    times = (_number(row[name]) for name in JCT)
    return (row["plan"], row["policy"], row["input"], *times, f"{row['finished']} of {row['jobs']}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def draw(report: Report, path: Path) -> None:
    """Of the first policy: rate over par's workers, completion times, spreads."""
    rows = [row for row in report.rows if row["policy"] == report.rows[0]["policy"]] if report.rows else []
    rates, jct = ([row for row in rows if row["measure"] == measure] for measure in ("rate", "jct"))
    title = f"{rows[0]['policy']} on {rows[0]['device']}, random weights" if rows else "nothing was measured"
    with picture(path, title, 3) as axes:
        pars = sorted((row for row in rates if row["mode"] == "par"), key=lambda row: row["workers"])
        axes[0].plot([r["workers"] for r in pars], [r["rate_hz"] for r in pars], "o-", color=COLOURS["par"])
        for row in rates:
            if row["mode"] in ("seq", "auras"):
                axes[0].axhline(row["rate_hz"], color=COLOURS[row["mode"]], linestyle="--", label=row["mode"])
        axes[0].set(title="chunks per second over par's workers", xlabel="workers", ylim=(0, None))
        axes[0].set_xticks([r["workers"] for r in pars])
        axes[0].legend(fontsize=8)
        _bars(axes[1], [(f"{r['mode']}\n{r['input']}", r["mode"], r["jct_ms"]) for r in jct], "completion, median ms")
        named = [(f"{r['mode']} {r['workers']}" if r["mode"] == "par" else r["mode"], r) for r in rates]
        spreads = [(label, row["mode"], row["spread_percent"]) for label, row in named]
        _bars(axes[2], spreads, "spread of output intervals, % of the mean")


def _bars(axes: Any, bars: Sequence[tuple[str, str, float | None]], title: str) -> None:
    known = [(label, mode, value) for label, mode, value in bars if value is not None]
    axes.bar([b[0] for b in known], [b[2] for b in known], color=[COLOURS[b[1]] for b in known], width=0.6)
    axes.set_title(title, fontsize=9)
