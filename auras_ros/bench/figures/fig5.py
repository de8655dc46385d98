"""`auras bench fig5`: success over the degree of parallelism, when every chunk is made from one old observation.

That is par with as many workers as the degree. On the paused clock each chunk is made from an observation that many
frames old, as in Auras figures 4 and 5. As published, a chunk runs from its index 0 whenever it comes; `aligned` is the
same with this project's alignment by time. For comparison: auras with as many stages of generation, which all read the
newest context.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from auras_ros.bench.figures.played import Point
from auras_ros.bench.figures.played_figure import PlayedFigure
from auras_ros.bench.options import listed
from auras_ros.pipeline.modes import family_offset
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Report

PANELS = ("par", "par, aligned", "auras")


def _points(options: argparse.Namespace, policy: LoadedPolicy, base: Plan) -> list[Point]:
    made = []
    for degree in options.degree:
        par = base.as_mode("par", degree)
        staged = replace(base, pp_generation=degree, fetch_offset=family_offset(policy))
        plans = zip(PANELS, (par, par, staged), (True, False, False), strict=True)
        made += [Point(panel, degree, plan, plain) for panel, plan, plain in plans]
    return made


def _add_summary(report: Report, options: argparse.Namespace, policy: LoadedPolicy) -> None:
    """Success of every point, and par's loss against seq at the highest degree, in percent of seq's."""
    for row in report.rows:
        if row["panel"] and row["success"] is not None:
            name = row["panel"].replace(", ", "_")
            report.summary[f"success_{row['clock']}_{name}_{row['at']:g}"] = row["success"]
    for clock in ("charged", "paused"):  # the paper's clock last, so that its loss is kept
        seq = next((row["success"] for row in report.rows if row["clock"] == clock and not row["panel"]), None)
        par = report.summary.get(f"success_{clock}_par_{max(options.degree)}")
        if seq and par is not None:
            report.summary["loss_par_percent"] = report.summary[f"loss_par_percent_{clock}"] = 100 * (1 - par / seq)


FIGURE = PlayedFigure(
    "fig5",
    __doc__,
    dict.fromkeys(PANELS, "degree of parallelism"),
    {"--degree": {"type": listed(int), "default": [1, 2, 3, 4, 5, 6], "help": "parallel requests (1,...,6)"}},
    _points,
    _add_summary,
    rates=False,
)
run, table, draw = FIGURE.run, FIGURE.table, FIGURE.draw
