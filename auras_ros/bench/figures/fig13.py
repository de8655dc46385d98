"""`auras bench fig13`: rate and success over the skew alpha of generation's stages (Auras figure 13).

Five stages of generation; alpha moves steps to the last one, which reads the newest context. Measured and played like
figure 12. On a GPU the steps of a frame run one after another. If launches limit the rate, alpha 1 may have as little
as 20/64 of alpha 0's rate: the last stage then has 64 of the 100 steps instead of 20.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from auras_ros.bench.figures.played import Point
from auras_ros.bench.figures.played_figure import PlayedFigure, found, point_summary
from auras_ros.bench.options import listed
from auras_ros.evaluate.settings import SettingsError
from auras_ros.pipeline.plan import Plan, stage_steps
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Report

PANEL = "alpha"


def _points(options: argparse.Namespace, policy: LoadedPolicy, base: Plan) -> list[Point]:
    if options.pp_generation < 2:
        raise SettingsError(f"--pp-generation must be at least 2, got {options.pp_generation}: one stage has no skew")
    if base.alpha:
        raise SettingsError(f"plan: alpha is what the figure varies (--alpha), got {base.alpha:g}")
    shared = replace(base, pp_generation=options.pp_generation)
    return [Point(PANEL, alpha, replace(shared, alpha=alpha)) for alpha in options.alpha]


def _add_summary(report: Report, options: argparse.Namespace, policy: LoadedPolicy) -> None:
    """The paper's two points, alpha 0 and 1, and the gain of alpha 1."""
    steps, stages = policy.steps, options.pp_generation
    summary, played = report.summary, [row for row in report.rows if row["measure"] == "played"]
    for alpha in (0.0, 1.0):
        summary[f"last_steps_percent_alpha_{alpha:g}"] = 100 * stage_steps(steps, stages, alpha)[-1] / steps
        for row in report.rows:
            if row["panel"] == PANEL and row["at"] == alpha:
                summary |= point_summary(row, "rate", row["rate_hz"])
    if {"rate_alpha_0", "rate_alpha_1"} <= summary.keys():
        summary["rate_alpha_1_over_0"] = summary["rate_alpha_1"] / summary["rate_alpha_0"]
    for clock in ("paused", "charged"):
        before, after = (found(played, clock, panel=PANEL, at=alpha) for alpha in (0.0, 1.0))
        if before and after and before["success"] and after["success"] is not None:
            gain = 100 * (after["success"] / before["success"] - 1)
            summary[f"gain_percent_alpha_1_{clock}"] = gain
            summary.setdefault("gain_percent_alpha_1", gain)  # on the paused clock, the paper's, if it was played


FIGURE = PlayedFigure(
    "fig13",
    __doc__,
    {PANEL: "skew alpha"},
    {
        "--alpha": {
            "type": listed(float),
            "default": [0.0, 0.25, 0.5, 0.75, 1.0, 1.5],
            "help": "skews (0,0.25,0.5,0.75,1,1.5)",
        },
        "--pp-generation": {"type": int, "default": 5, "help": "stages of generation (5, as in the paper)"},
    },
    _points,
    _add_summary,
)
run, table, draw = FIGURE.run, FIGURE.table, FIGURE.draw
