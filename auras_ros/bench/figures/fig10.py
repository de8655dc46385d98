"""`auras bench fig10`: the four modes side by side (Auras figure 10).

The rates are measured as by `auras bench pipeline`, with its options, or read from one of its reports (--rates). The
paper's numbers stand beside them. Success comes from reports of `auras eval`, which takes hours and can be run in
parts: --eval joins the reports, one for each number of denoising steps (40, 100 and 160 in the paper), or several with
some of the modes each:

  auras eval --sim pusht-drift --plan ddpm100,pp_generation=4,alpha=0.5 --episodes 400 --json 100.json
  auras bench fig10 --policy dp --eval 40.json,100.json,160.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.options import bench_parser, refusing
from auras_ros.bench.pipeline import command as pipeline
from auras_ros.evaluate.parts import MOST_BYTES, UNREADABLE, EvaluationPart
from auras_ros.evaluate.settings import SettingsError
from auras_ros.measure.cores import words
from auras_ros.report.picture import COLOURS, legend_below, picture
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, grouped_by, in_columns
from auras_ros.text_file import read_text_file

ACCURACY = "success is on Push-T only, with a policy that we trained: the paper's other models were not evaluated"
SUCCESS: tuple[Column, ...] = (
    ("plan", "{plan}"),
    ("simulator", "{sim}"),
    ("clock", "{clock}"),
    ("mode", "{mode}"),
    ("Push-T success", "{success:.1%}"),
    ("95 %", "{low:.1%} to {high:.1%}"),
    ("episodes", "{episodes}"),
)
BATCHED = "par-batched"  # par whose requests begin together
HEADLINE_CLOCK = "paused"  # the paper's


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("fig10", __doc__, help_=False)
    parser.add_argument("--eval", metavar="FILE,...", default="", help="reports of `auras eval --json`")
    parser.add_argument("--rates", metavar="FILE", type=Path, help="a report of `auras bench pipeline --json`")
    options, rest = parser.parse_known_args(argv)
    if not {"-h", "--help"}.isdisjoint(rest):
        print(f"{parser.format_help()}\nand the options of `auras bench pipeline`:\n")
    with refusing(parser, OSError, SettingsError, what="--eval: "):
        parts = [EvaluationPart.load(Path(path)) for path in options.eval.split(",") if path]
    if options.rates is not None and rest:
        parser.error(f"with --rates nothing is measured, so {rest[0]} has no effect")
    report = pipeline.run(rest, progress) if options.rates is None else _measured(parser, options.rates)
    report.name = "fig10"
    _sum_rates(report)
    played = (row for part in parts for row in success_rows(part))
    for same in grouped_by(played, "policy", "sim", "plan", "clock", "mode").values():
        report.rows.append(max(same, key=lambda row: row["episodes"]))  # modes may have been played separately
    _sum_success(report)
    return finish(report)


def _measured(parser: argparse.ArgumentParser, path: Path) -> Report:
    """The report of an earlier run of `auras bench pipeline`; its date and machine are kept in `rates_of`. Exits with
    status 2 if the file is not such a report."""
    with (
        refusing(parser, OSError, what="--rates: "),
        refusing(parser, *UNREADABLE, what=f"--rates: {path}: not a report of `auras bench pipeline`: "),
    ):
        raw = json.loads(read_text_file(path, MOST_BYTES))
        kept = Report("pipeline", list(raw["rows"]), dict(raw["summary"]))
        if raw["name"] != kept.name or not any(row["measure"] == "rounds" and row["cores"] for row in kept.rows):
            raise ValueError("it has no rates of the modes")
        kept.more["rates_of"] = {name: raw[name] for name in ("command", "date", "hardware", "versions")}
        kept.more |= {name: raw[name] for name in ("interrupted", "failed", "left_out", "disturbed") if name in raw}
    return kept


def success_rows(part: EvaluationPart) -> list[dict[str, Any]]:
    """A row for each mode and clock; `policy` is the checkpoint."""
    settings, rows = part.settings, part.report().rows
    kept = ("mode", "clock", "success", "low", "high", "episodes", "diff", "diff_low", "diff_high")
    named = {"policy": settings.checkpoint, "measure": "success", "sim": settings.sim, "cores": settings.cores}
    named["plan"] = settings.plan
    return [{**named, **{name: row[name] for name in kept}} for row in rows]


def _sum_rates(report: Report) -> None:
    """Means of the ratios over the policies, for comparison with the paper's means over models and GPUs."""
    policies = {key(row["policy"]) for row in report.rows if row["measure"] == "rounds"}
    for name in ("auras_over_seq", "auras_over_dec", "auras_over_par", "dec_over_seq", "par_over_seq"):
        known = [report.summary[f"{name}_{policy}"] for policy in policies if f"{name}_{policy}" in report.summary]
        if known:
            report.summary[f"mean_{name}"] = fmean(known)


def _sum_success(report: Report) -> None:
    """The success of auras in percent of seq's, and the loss of par, averaged over the reports in which seq succeeds at
    least once."""
    rows = [row for row in report.rows if row["measure"] == "success"]
    for clock in ("charged", HEADLINE_CLOCK):
        found: dict[str, list[float]] = {}
        played = (row for row in rows if row["clock"] == clock)
        for own in grouped_by(played, "policy", "sim", "plan").values():
            share = {row["mode"]: row["success"] for row in own}
            if share.get("seq"):
                for mode in share.keys() & {"auras", "par"}:
                    found.setdefault(mode, []).append(100 * share[mode] / share["seq"])
        sums = {f"{mode}_success_of_seq_percent": fmean(each) for mode, each in found.items() if mode == "auras"}
        sums |= {f"{mode}_success_loss_percent": 100 - fmean(each) for mode, each in found.items() if mode == "par"}
        report.summary |= sums | {f"{name}_{clock}": value for name, value in sums.items()}


def table(report: Report) -> str:
    """The pipeline's own table, then success."""
    rows = [row for row in report.rows if row["measure"] == "success"]
    rates = Report(report.name, [row for row in report.rows if row["measure"] != "success"], report.summary)
    lines = [pipeline.table(rates)]
    if rows:
        lines += ["", *in_columns(rows, SUCCESS), ACCURACY]
    return with_paper(report, lines)


def draw(report: Report, path: Path) -> None:
    """Rates of each policy by mode, and success of each plan by mode, on the paused clock if that was played."""
    rounds = [row for row in report.rows if row["measure"] == "rounds"]
    success = [row for row in report.rows if row["measure"] == "success"]
    clocks = {row["clock"] for row in success}
    clock = HEADLINE_CLOCK if HEADLINE_CLOCK in clocks else next(iter(sorted(clocks)), "")
    with picture(path, "figure 10: success on Push-T, and chunks per second, by mode", 2) as axes:
        played = [row for row in success if row["clock"] == clock]
        kinds = {row["plan"]: str(row["plan"]).partition(",")[0] for row in played}  # ddpm100; whole if not unique
        names = kinds if len(set(kinds.values())) == len(kinds) else {plan: plan.replace(",", "\n") for plan in kinds}
        _grouped(axes[0], [(names[row["plan"]], row["mode"], row["success"]) for row in played])
        axes[0].set_title(f"success on Push-T, {clock} clock" if clock else "success: not played (--eval)")
        best: dict[tuple[str, str], float] = {}
        for row in sorted(rounds, key=lambda row: float(row["chunks_per_s"])):
            where, kind = f"{row['policy']}\n{words(row['cores'])} each", BATCHED if row["together"] else row["mode"]
            best[where, kind] = row["chunks_per_s"]
        order = [*COLOURS, BATCHED]
        rates = sorted(best.items(), key=lambda each: (each[0][0], order.index(each[0][1])))
        _grouped(axes[1], [(policy, mode, rate) for (policy, mode), rate in rates])
        axes[1].set_title("chunks per second, each mode's best form")


def _grouped(axes: Any, bars: Sequence[tuple[str, str, float]]) -> None:
    """Bars side by side, a group for each first name."""
    groups, modes = (list(dict.fromkeys(bar[i] for bar in bars)) for i in (0, 1))
    for group, mode, value in bars:
        at = groups.index(group) + (modes.index(mode) - (len(modes) - 1) / 2) * 0.8 / len(modes)
        label = mode if group == groups[0] else None
        plain, _, aligned_ = mode.partition("-")
        axes.bar([at], [value], 0.8 / len(modes), color=COLOURS[plain], alpha=0.5 if aligned_ else 1.0, label=label)
    axes.set_xticks(range(len(groups)), groups)
    legend_below(axes, columns=5)
