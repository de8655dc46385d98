"""With --policy: the rates of a figure's plans on an architecture with random weights."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from auras_ros.bench.figures.played import Point
from auras_ros.bench.options import add_job_options, add_steps, check_job_options, refusing
from auras_ros.bench.policies import build, generation_of, names, room_as_run
from auras_ros.measure.compare import RATE_COLUMNS, marked, measure
from auras_ros.measure.job import Job, run_jobs
from auras_ros.pipeline.modes import check_plan
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Report, Say
from auras_ros.report.table import Row, in_columns


def add_rate_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("also measure the rates of an architecture with random weights")
    group.add_argument("--policy", choices=names(), help="the architecture (none)")
    add_job_options(group, minutes=None)
    add_steps(group)


def rates_of(
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
    built = build(options.policy, steps=options.steps, **room_as_run(options.device))
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


def rate_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each plan; no lines if none was measured."""
    if not rows:
        return []
    what = f"{rows[0]['policy']} on {rows[0]['device']}, random weights"
    return ["", *in_columns(rows, ((what, "{plan}"), *RATE_COLUMNS, ("rounds", "{rounds}"), ("", marked)))]
