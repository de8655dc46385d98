"""A figure with success: its plans are timed and played, and with --policy measured on an architecture's weights."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.figures.played import FigureCampaign, Point, add_options
from auras_ros.bench.options import add_job_options, add_steps, bench_parser, check_job_options, refusing
from auras_ros.bench.policies import build, generation_of, names, where_built_as_run
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.show import REFUSED, success_columns
from auras_ros.measure.compare import RATE_COLUMNS, Job, marked, measure, run_jobs
from auras_ros.measure.cores import suffix
from auras_ros.pipeline.modes import check_plan
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.picture import BLUE, GREEN, GREY, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, Row, in_columns

COLUMNS: tuple[Column, ...] = (
    ("plan", lambda row: f"{row['plan']}{' plain' if row['plain'] else ''}"),
    ("clock", "{clock}"),
    ("cores", "{cores}"),
    ("chunks/s", "{rate_hz:.2f}"),
    ("x seq", "{speedup:.2f}"),
    ("episodes", lambda row: "-" if row["success"] is None else str(row["episodes"])),
    *success_columns("seq", "above_seq", "above_low", "above_high"),
    ("age ms", "{staleness_ms:.0f}"),
    REFUSED,
)


@dataclass(frozen=True)
class PlayedFigure:
    """Its module offers `run`, `table` and `draw`. doc: the module's. panels: of the picture, with the label of each x
    axis. options: its own, with argparse's arguments. points: its plans for these options and a policy, from the plan
    that they share; raises SettingsError. add_summary: from the rows, the options and the trained policy. rates:
    whether it has --policy."""

    name: str
    doc: str | None
    panels: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]
    points: Callable[[argparse.Namespace, LoadedPolicy, Plan], Sequence[Point]]
    add_summary: Callable[[Report, argparse.Namespace, LoadedPolicy], None]
    rates: bool = True

    def run(self, argv: list[str], progress: Say) -> Report:
        """Exits with status 2 if the options cannot be used."""
        parser = bench_parser(self.name, self.doc)
        add_options(parser, "ddpm100")
        for name, given in self.options.items():
            parser.add_argument(name, **given)
        if self.rates:
            group = parser.add_argument_group("also measure the rates of an architecture with random weights")
            group.add_argument("--policy", choices=names(), help="the architecture (none)")
            add_job_options(group, minutes=None)
            add_steps(group)
        options = parser.parse_args(argv)
        points = partial(self.points, options)
        with refusing(parser, CheckpointError, PlanError, SettingsError):
            campaign = FigureCampaign(options, points, progress)
        report, began_s = Report(self.name), time.monotonic()
        campaign.run(report)
        report.rows += campaign.rows()
        report.more["title"] = campaign.named()
        if self.rates:
            options.minutes = max(0.0, options.minutes - (time.monotonic() - began_s) / 60)
            _rates_of(parser, options, points, report, progress)
        self.add_summary(report, options, campaign.policy)
        return finish(report)

    def table(self, report: Report) -> str:
        """A line for each played plan, then the rates of an architecture, if they were measured."""
        played = in_columns((row for row in report.rows if row["measure"] == "played"), COLUMNS)
        lines = [str(report.more["title"]), *dict.fromkeys(played)]
        if rates := [row for row in report.rows if row["measure"] == "rate"]:
            what = f"{rates[0]['policy']} on {rates[0]['device']}, random weights"
            lines += ["", *in_columns(rates, ((what, "{plan}"), *RATE_COLUMNS, ("rounds", "{rounds}"), ("", marked)))]
        return with_paper(report, lines)

    def draw(self, report: Report, path: Path) -> None:
        """The panels side by side."""
        played = [row for row in report.rows if row["measure"] == "played"]
        with picture(path, str(report.more["title"]), len(self.panels)) as axes:
            for one, (panel, label) in zip(axes, self.panels.items(), strict=True):
                draw_panel(one, played, panel, label)


def point_summary(row: Row, what: str, value: float) -> dict[str, float]:
    """A point's keys of the summary: `what`, with the architecture's name if it is a rate of --policy, and success."""
    point = f"{row['panel'].replace(', ', '_')}_{row['at']:g}"
    if row["measure"] == "rate":
        return {f"{what}_{key(row['policy'])}_{point}{suffix(row['cores'], (1,))}": value}
    success = {} if row["success"] is None else {f"success_{row['clock']}_{point}": row["success"]}
    return {f"{what}_{point}": value} | success


def found(rows: Sequence[Row], clock: str, **fields: Any) -> Row | None:
    """The first row of a clock with these fields, or None."""
    for row in rows:
        if row["clock"] == clock and all(row[name] == value for name, value in fields.items()):
            return row
    return None


def draw_panel(axes: Any, rows: Sequence[Row], panel: str, label: str) -> None:
    """Success over `at` on each clock, and the rate on a second axis."""
    own = [row for row in rows if row["panel"] == panel]
    colours = {"paused": BLUE, "charged": ORANGE}
    for clock in dict.fromkeys(row["clock"] for row in own):
        played = [row for row in own if row["clock"] == clock and row["success"] is not None]
        at, share = [row["at"] for row in played], [row["success"] for row in played]
        style = {"fmt": "o-", "color": colours[clock], "capsize": 3, "label": f"success, {clock} clock"}
        axes.errorbar(at, share, whiskers(played, "success"), **style)
        seq = found(rows, clock, mode="seq", panel="")
        if seq is not None and seq["success"] is not None:
            axes.axhline(seq["success"], color=colours[clock], linestyle=":", linewidth=1)
    once = list({row["at"]: row for row in own}.values())
    beside = axes.twinx()
    beside.plot([row["at"] for row in once], [row["rate_hz"] for row in once], "s--", color=GREEN, markersize=4)
    beside.set_ylim(0, 1.08 * max((row["rate_hz"] for row in once), default=1.0))
    beside.set_ylabel("chunks per second (squares)", fontsize=8, color=GREEN)
    axes.set(title=panel, xlabel=label, ylim=(-0.02, 1.02))
    axes.set_ylabel("success, 95 % Wilson; dotted: seq", fontsize=8, color=GREY)
    axes.set_xticks([row["at"] for row in once])
    legend_below(axes)


# -- with --policy: the rates of the same plans on random weights -------------------------------------


def _rates_of(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    points_of: Callable[[LoadedPolicy, Plan], Sequence[Point]],
    report: Report,
    progress: Say,
) -> None:
    """Measure the figure's plans on --policy, a row each. Does nothing without --policy or after an interruption."""
    if options.policy is None or "interrupted" in report.more:
        return
    check_job_options(parser, options, steps=2)
    built = build(options.policy, steps=options.steps, **where_built_as_run(options.device))
    base = Plan(generation_of(options.policy, options.steps), "auras")
    points, seq = points_of(built.policy, base), base.as_mode("seq")
    with refusing(parser, PlanError, what=f"--policy {options.policy}: "):
        for point in points:
            check_plan(built.policy, point.plan)
    plans = list(dict.fromkeys([seq, *(point.plan for point in points)]))

    def compare(job: Job) -> None:
        with job.bench(built.policy) as bench:
            measured = measure(bench, job, plans)
        where = {"measure": "rate", "policy": options.policy, "device": bench.device.type}
        report.rows += [
            {**where, "panel": point.panel, "at": point.at, **built.fields(), **measured.figures(point.plan, seq)}
            for point in points
            if point.plan in measured
        ]

    run_jobs({options.policy: compare}, options, report, progress)
