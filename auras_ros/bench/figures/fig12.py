"""`auras bench fig12`: rate and success over the number of stages (Auras figure 12).

Once over pp_generation with one stage of perception, once over pp_perception with one stage of generation. Rates are
measured live, and so is seq for comparison. Success is measured in lockstep on Push-T, on the paused clock (the
paper's) and on the charged one. With --work an interrupted run can be continued. --policy also measures the rates of an
architecture with random weights, on a CPU or GPU; --episodes 0 plays nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from auras_ros.bench.figures.played import Point
from auras_ros.bench.figures.played_figure import PlayedFigure, point_summary
from auras_ros.bench.options import listed
from auras_ros.pipeline.modes import family_offset
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Report

PANELS = {
    "pp_generation": "stages of generation, one of perception",
    "pp_perception": "stages of perception, one of generation",
}
STAGES = {"pp_generation": [1, 2, 3, 4, 5, 6, 8, 10], "pp_perception": [1, 2, 3, 4]}


def _points(options: argparse.Namespace, policy: LoadedPolicy, base: Plan) -> list[Point]:
    shared = replace(base, fetch_offset=family_offset(policy))
    return [
        Point(panel, count, replace(shared, **{panel: count})) for panel in PANELS for count in getattr(options, panel)
    ]


def _add_summary(report: Report, options: argparse.Namespace, policy: LoadedPolicy) -> None:
    for row in report.rows:
        if row["panel"] in PANELS:
            report.summary |= point_summary(row, "speedup", row["speedup"])


FIGURE = PlayedFigure(
    "fig12",
    __doc__,
    PANELS,
    {
        f"--{panel.replace('_', '-')}": {"type": listed(int), "default": counts, "help": f"stages {counts}"}
        for panel, counts in STAGES.items()
    },
    _points,
    _add_summary,
)
run, table, draw = FIGURE.run, FIGURE.table, FIGURE.draw
