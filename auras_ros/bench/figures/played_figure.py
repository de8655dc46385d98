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
from auras_ros.bench.figures.rates import add_rate_options, rate_lines, rates_of
from auras_ros.bench.options import bench_parser, refusing
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.show import REFUSED, success_columns
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.picture import BLUE, GREEN, GREY, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report, Say
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
            add_rate_options(parser)
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
            rates_of(parser, options, points, report, progress)
        self.add_summary(report, options, campaign.policy)
        return finish(report)

    def table(self, report: Report) -> str:
        """A line for each played plan, then the rates of an architecture, if they were measured."""
        played = in_columns((row for row in report.rows if row["measure"] == "played"), COLUMNS)
        rates = rate_lines([row for row in report.rows if row["measure"] == "rate"])
        return with_paper(report, [str(report.more["title"]), *dict.fromkeys(played), *rates])

    def draw(self, report: Report, path: Path) -> None:
        """The panels side by side."""
        played = [row for row in report.rows if row["measure"] == "played"]
        with picture(path, str(report.more["title"]), len(self.panels)) as axes:
            for one, (panel, label) in zip(axes, self.panels.items(), strict=True):
                draw_panel(one, played, panel, label)


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
        axes.plot(at, share, "o-", color=colours[clock], label=f"success, {clock} clock")
        for row in played:
            axes.errorbar([row["at"]], [row["success"]], whiskers(row, "success"), color=colours[clock], capsize=3)
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
