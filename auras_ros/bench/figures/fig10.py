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

from auras_ros.bench import pipeline
from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.options import bench_parser, refusing
from auras_ros.evaluate.parts import EvaluationPart
from auras_ros.evaluate.settings import SettingsError
from auras_ros.measure.cores import unnamed, words
from auras_ros.report.picture import COLOURS, legend_below, picture
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, Row, in_columns

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
        parts = [(EvaluationPart.load(Path(path)), _cores_of(Path(path))) for path in options.eval.split(",") if path]
    if options.rates is not None and rest:
        parser.error(f"with --rates nothing is measured, so {rest[0]} has no effect")
    report = pipeline.run(rest, progress) if options.rates is None else _measured(parser, options.rates)
    report.name = "fig10"
    _sum_rates(report)
    report.rows += _longest([row for part, cores in parts for row in success_rows(part, cores)])
    _sum_success(report)
    return finish(report)


def _measured(parser: argparse.ArgumentParser, path: Path) -> Report:
    """The report of an earlier run of `auras bench pipeline`; its date and machine are kept in `rates_of`. Exits with
    status 2 if the file is not such a report."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        kept = Report("pipeline", list(raw["rows"]), dict(raw["summary"]))
        if raw["name"] != kept.name or not any(row["measure"] == "rounds" for row in kept.rows):
            raise ValueError("it has no rates of the modes")
        if why := unnamed(kept.rows):
            raise ValueError(f"{why} (the report is from a version that did not count them: measure again)")
        kept.more["rates_of"] = {name: raw[name] for name in ("command", "date", "hardware", "versions")}
        kept.more |= {name: raw[name] for name in ("interrupted", "failed", "left_out", "disturbed") if name in raw}
    except OSError as error:
        parser.error(f"--rates: {error}")
    except (ValueError, KeyError, TypeError) as error:
        parser.error(f"--rates: {path}: not a report of `auras bench pipeline`: {error}")
    return kept


def _cores_of(path: Path) -> int:
    """The cores that the report's command might use; on the paused clock they do not matter."""
    return int(json.loads(path.read_text(encoding="utf-8")).get("hardware", {}).get("cores", 0))


def success_rows(part: EvaluationPart, cores: int = 0) -> list[dict[str, Any]]:
    """A row for each mode and clock; `policy` is the checkpoint."""
    settings, rows = part.settings, part.report().rows
    kept = ("mode", "clock", "success", "low", "high", "episodes", "diff", "diff_low", "diff_high")
    named = {"policy": settings.checkpoint, "measure": "success", "sim": settings.sim, "cores": settings.cores or cores}
    named["plan"] = settings.plan
    return [{**named, **{name: row[name] for name in kept}} for row in rows]


def _longest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each mode the row with the most episodes, if reports share a plan: modes may have been played separately."""
    kept: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        which = tuple(row[name] for name in ("policy", "sim", "plan", "clock", "mode"))
        if which not in kept or row["episodes"] > kept[which]["episodes"]:
            kept[which] = row
    return list(kept.values())


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
        for plan in dict.fromkeys((row["policy"], row["sim"], row["plan"]) for row in rows):
            own = [row for row in rows if (row["policy"], row["sim"], row["plan"]) == plan and row["clock"] == clock]
            share = {row["mode"]: row["success"] for row in own}
            if share.get("seq"):
                for mode in share.keys() & {"auras", "par"}:
                    found.setdefault(mode, []).append(100 * share[mode] / share["seq"])
        if "auras" in found:
            report.summary["auras_success_of_seq_percent"] = fmean(found["auras"])
            report.summary[f"auras_success_of_seq_percent_{clock}"] = fmean(found["auras"])
        if "par" in found:
            report.summary["par_success_loss_percent"] = 100 - fmean(found["par"])
            report.summary[f"par_success_loss_percent_{clock}"] = 100 - fmean(found["par"])


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
        best = {(_where(row), _kind(row)): row["chunks_per_s"] for row in sorted(rounds, key=_rate)}
        order = [*COLOURS, BATCHED]
        rates = sorted(best.items(), key=lambda each: (each[0][0], order.index(each[0][1])))
        _grouped(axes[1], [(policy, mode, rate) for (policy, mode), rate in rates])
        axes[1].set_title("chunks per second, each mode's best form")


def _where(row: Row) -> str:
    return f"{row['policy']}\n{words(row['cores'])} each"


def _kind(row: Row) -> str:
    return BATCHED if row["together"] else str(row["mode"])


def _rate(row: Row) -> float:
    return float(row["chunks_per_s"])


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
