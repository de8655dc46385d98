"""With --policy: the rates of a figure's plans on an architecture with random weights."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from auras_ros.bench.options import add_measured, check_job_options
from auras_ros.bench.policies import build, generation_of, names, room_as_run
from auras_ros.measure.compare import marked, measure
from auras_ros.measure.job import Job, Progress, run_jobs
from auras_ros.pipeline.modes import check_plan
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.policies.policy import Policy
from auras_ros.report.result import Report
from auras_ros.report.table import aligned


def add_rate_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("also measure the rates of an architecture with random weights")
    group.add_argument("--policy", choices=names(), help="the architecture (none)")
    add_measured(group, minutes=None)


Stages = Callable[[Policy, Plan], Sequence[tuple[str, float, Plan]]]


def rates_of(
    parser: argparse.ArgumentParser, options: argparse.Namespace, stages: Stages, report: Report, progress: Progress
) -> None:
    """Measure the figure's plans on --policy, a row each. Does nothing without --policy or after an interruption."""
    if options.policy is None or "interrupted" in report.more:
        return
    check_job_options(parser, options, steps=2)
    built = build(options.policy, steps=options.steps, **room_as_run(options.device))
    base = Plan(generation_of(options.policy, options.steps), "auras")
    points, seq = stages(built.policy, base), base.as_mode("seq")
    try:
        for _, _, plan in points:
            check_plan(built.policy, plan)
    except PlanError as error:
        parser.error(f"--policy {options.policy}: {error}")
    plans = list(dict.fromkeys([seq, *(plan for _, _, plan in points)]))

    def compare(job: Job) -> None:
        with job.bench(built.policy) as bench:
            measured = measure(bench, job, plans)
        where = {"measure": "rate", "policy": options.policy, "device": bench.device.type}
        report.rows += [
            {**where, "panel": panel, "at": at, **built.fields(), **measured.figures(plan, seq)}
            for panel, at, plan in points
            if plan in measured
        ]

    run_jobs({options.policy: compare}, options, report, progress)


def rate_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each plan; no lines if none was measured."""
    if not rows:
        return []
    what = f"{rows[0]['policy']} on {rows[0]['device']}, random weights"
    lines = [(what, "cores", "chunks/s", "x seq", "quartiles", "rounds", "")]
    for row in rows:
        quartiles = f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"
        figures = (f"{row['rate_hz']:.2f}", f"{row['speedup']:.2f}", quartiles, str(row["rounds"]), marked(row))
        lines.append((row["plan"], str(row["cores"]), *figures))
    return ["", *aligned(lines)]
