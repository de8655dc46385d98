"""`auras bench fig12`: rate and success over the number of stages (Auras figure 12).

Once over pp_generation with one stage of perception, once over pp_perception with one stage of generation. Rates are
measured live, and so is seq for comparison. Success is measured in lockstep on Push-T, on the paused clock (the
paper's) and on the charged one. With --work an interrupted run can be continued. --policy also measures the rates of an
architecture with random weights, on a CPU or GPU; --episodes 0 plays nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from auras_ros.bench.figures.played import Point, Progress, add_options, play
from auras_ros.bench.figures.played_show import draw_panels, lines
from auras_ros.bench.figures.rates import add_rate_options, rates_of
from auras_ros.bench.figures.show import finish, with_paper
from auras_ros.bench.options import listed
from auras_ros.measure.cores import suffix
from auras_ros.pipeline.modes import family_offset
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.policy import Policy
from auras_ros.report.result import Report, key

PANELS = ("pp_generation", "pp_perception")


def run(argv: list[str], progress: Progress) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    report = Report("fig12")

    def stages(policy: Policy, base: Plan) -> list[tuple[str, int, Plan]]:
        shared = replace(base, fetch_offset=family_offset(policy))
        over_generation = [(PANELS[0], n, replace(shared, pp_generation=n)) for n in options.pp_generation]
        return [*over_generation, *((PANELS[1], n, replace(shared, pp_perception=n)) for n in options.pp_perception)]

    def points(checkpoint: Checkpoint, base: Plan) -> Sequence[Point]:
        policy = checkpoint.policy(base.generation)
        return [Point(panel, count, plan) for panel, count, plan in stages(policy, base)]

    play(parser, options, points, report, progress)
    rates_of(parser, options, stages, report, progress)
    _sum(report)
    return finish("fig12", report)


def _sum(report: Report) -> None:
    for row in report.rows:
        if row["panel"] in PANELS:
            name = f"{row['panel']}_{row['at']:g}"
            if row["measure"] == "rate":
                cores = suffix(row["cores"], (1,))
                report.summary[f"speedup_{key(row['policy'])}_{name}{cores}"] = row["speedup"]
                continue
            report.summary[f"speedup_{name}"] = row["speedup"]
            if row["success"] is not None:
                report.summary[f"success_{row['clock']}_{name}"] = row["success"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="auras bench fig12", description=__doc__)
    add_options(parser, "ddpm100")
    parser.add_argument(
        "--pp-generation", type=listed(int), default=[1, 2, 3, 4, 5, 6, 8, 10], help="stages (1,2,3,4,5,6,8,10)"
    )
    parser.add_argument("--pp-perception", type=listed(int), default=[1, 2, 3, 4], help="stages (1,2,3,4)")
    add_rate_options(parser)
    return parser


def table(report: Report) -> str:
    return with_paper("fig12", report, lines(report))


def draw(report: Report, path: Path) -> None:
    draw_panels(
        report, PANELS, ("stages of generation, one of perception", "stages of perception, one of generation"), path
    )
