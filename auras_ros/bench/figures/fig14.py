"""`auras bench fig14`: speedup of auras over seq for several sizes of perception and generation (Auras figure 14).

A module of scale k has about 2^k times its parameters, by width at the same depth (`policies`). Each module is scaled
while the other has its published size; --grid measures every pair. Random weights and observations. seq and auras are
checked against each other, then measured in interleaved rounds. If memory cannot hold a vision-language model, its
layers share their parameters, and the row notes it. On a CPU the default networks are small.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from auras_ros.bench.figures.show import finish, with_paper
from auras_ros.bench.options import add_measured, add_seed, check_job_options, check_stages, listed
from auras_ros.bench.policies import add_choice, auras_plan, build, chosen, room_as_run
from auras_ros.device import DeviceError
from auras_ros.measure.compare import marked, measure
from auras_ros.measure.cores import suffix, words
from auras_ros.measure.job import Job, Progress, run_jobs
from auras_ros.measure.minutes import leave_out
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.report.picture import BLUE, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report, key
from auras_ros.report.table import aligned

SCALES = (-4, -2, 0, 2, 4)  # the paper's
DEFAULTS = {"cuda": ("dp-plus", "openvla-7b"), "cpu": ("dp-small", "openvla-small")}
CPU_SCALES = (-4, -2, 0, 2)
STAGES = 10  # of generation, diffusion
NOTE = (
    "scaled by width; ResNet's layers have at least 16 channels, so a small one shrinks less than its scale: "
    "the row has the real millions of parameters"
)


def run(argv: list[str], progress: Progress) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    report = Report("fig14", more={"note": NOTE})
    subjects = {
        f"{name}, perception {perceived:+d}, generation {generated:+d}": partial(_measure, name, perceived, generated)
        for name in options.policy
        for perceived, generated in pairs(options)
    }
    run_jobs(subjects, options, report, progress)
    for name in options.policy:
        for cores in options.cores:
            rows = [row for row in report.rows if (row["policy"], row["cores"]) == (name, cores)]
            speedups, ending = [row["speedup"] for row in rows], f"{key(name)}{suffix(cores, options.cores)}"
            if speedups:
                report.summary |= {f"least_{ending}": min(speedups), f"most_{ending}": max(speedups)}
    return finish("fig14", report)


def pairs(options: argparse.Namespace) -> list[tuple[int, int]]:
    """(perception, generation): the published sizes first, then each module scaled alone, or every pair."""
    if options.grid:
        every = list(product(options.perception, options.generation))
    else:
        every = [*((k, 0) for k in options.perception), *((0, k) for k in options.generation)]
    return list(dict.fromkeys([(0, 0), *every]))


def _measure(name: str, perception: int, generation: int, job: Job) -> None:
    """One pair of sizes as a row; the report names a pair that does not fit in memory."""
    options = job.options
    job.say(f"{job.what}: building")
    built = build(
        name,
        steps=options.steps,
        perception=perception,
        generation=generation,
        tokens=options.tokens,
        **room_as_run(options.device),
    )
    auras = auras_plan(name, built.policy, options)
    seq = auras.as_mode("seq")
    try:
        with job.bench(built.policy) as bench:
            measured = measure(bench, job, [seq, auras])
    except (torch.cuda.OutOfMemoryError, DeviceError) as error:
        if not any(isinstance(each, torch.cuda.OutOfMemoryError) for each in (error, error.__cause__)):
            raise
        leave_out(job.report, job.what, str(error).splitlines()[0])
        return
    if auras in measured:
        sizes = {"policy": name, "device": bench.device.type, "perception": perception, "generation": generation}
        seq_hz = measured.figures(seq, seq)["rate_hz"]
        job.report.rows.append({**sizes, **built.fields(), "seq_hz": seq_hz, **measured.figures(auras, seq)})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="auras bench fig14", description=__doc__)
    add_choice(parser, DEFAULTS)
    scales = "exponents of two, as in =-2,0,2 (-4,-2,0,2,4; on a CPU up to 2)"
    parser.add_argument("--perception", type=listed(int), metavar="K,...", help=scales)
    parser.add_argument("--generation", type=listed(int), metavar="K,...", help=scales)
    parser.add_argument("--grid", action="store_true", help="every pair, not each module alone")
    parser.add_argument("--pp-generation", type=int, default=STAGES, help=f"stages of denoising ({STAGES})")
    parser.add_argument("--tokens", type=int, default=7, help="tokens of an action, each a stage (7)")
    add_measured(parser)
    add_seed(parser)
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in the defaults that depend on the device. Exits with status 2 if the options cannot be measured."""
    kind = check_job_options(parser, options, steps=2)
    options.policy = chosen(parser, options.policy, kind, DEFAULTS)
    scales = list(SCALES if kind == "cuda" else CPU_SCALES)
    options.perception = scales if options.perception is None else options.perception
    options.generation = scales if options.generation is None else options.generation
    for name in options.policy:
        if name.startswith("tinyvla"):
            parser.error(f"--policy: '{name}' has only one size")
    for exponent in (*options.perception, *options.generation):
        if not -8 <= exponent <= 8:
            parser.error(f"--perception and --generation: exponents from -8 to 8, got {exponent}")
    try:
        Plan("quick", "auras", pp_generation=options.pp_generation)
        Plan("quick", "auras", pp_generation=options.tokens)
    except PlanError as error:
        parser.error(str(error))
    check_stages(parser, options.pp_generation, options.steps)


def table(report: Report) -> str:
    """A line for each pair of sizes."""
    sizes = ("policy", "perception", "generation", "M", "M", "cores")
    columns = (*sizes, "seq /s", "auras /s", "x seq", "quartiles", "")
    return with_paper("fig14", report, aligned([columns, *(_cells(row) for row in report.rows)]))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    sizes = (f"2^{row['perception']}", f"2^{row['generation']}")
    millions = (f"{row['perception_million']:.1f}", f"{row['generation_million']:.1f}")
    quartiles = f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"
    rates = (f"{row['seq_hz']:.2f}", f"{row['rate_hz']:.2f}", f"{row['speedup']:.2f}", quartiles)
    notes = ["layers share parameters" if row["shared_layers"] else "", marked(row)]
    return (row["policy"], *sizes, *millions, str(row["cores"]), *rates, ", ".join(filter(None, notes)))


def draw(report: Report, path: Path) -> None:
    """For each policy and number of cores the speedup over the scale of each module, the other at its published
    size."""
    groups = list(dict.fromkeys((row["policy"], row["cores"]) for row in report.rows))
    with picture(path, "auras over seq by size of the modules, random weights", max(1, len(groups))) as axes:
        for one, (name, cores) in zip(axes, groups, strict=False):
            rows = [row for row in report.rows if (row["policy"], row["cores"]) == (name, cores)]
            for module, other, colour in (("perception", "generation", ORANGE), ("generation", "perception", BLUE)):
                _line(one, sorted((r for r in rows if r[other] == 0), key=lambda r: r[module]), module, colour)
            one.axhline(1, color="black", linewidth=0.8)
            title = f"{name} on {rows[0]['device']}, {words(cores)} for each side"
            one.set(title=title, xlabel="scale k: about 2^k times the parameters")
            one.set(ylabel="times seq, quartiles", ylim=(0, None))
            one.title.set_fontsize(9)
            legend_below(one)


def _line(axes: Any, rows: Sequence[dict[str, Any]], module: str, colour: str) -> None:
    axes.plot([row[module] for row in rows], [row["speedup"] for row in rows], "o-", color=colour, label=module)
    for row in rows:
        span = whiskers(row, "speedup", "speedup_low", "speedup_high")
        axes.errorbar([row[module]], [row["speedup"]], span, color=colour, capsize=3)
