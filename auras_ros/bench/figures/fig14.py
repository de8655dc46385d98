"""`auras bench fig14`: speedup of auras over seq for several sizes of perception and generation (Auras figure 14).

A module of scale k has about 2^k times its parameters, by width at the same depth (`policies`). Each module is scaled
while the other has its published size; --grid measures every pair. Random weights and observations. seq and auras are
checked against each other, then measured in interleaved rounds. If memory cannot hold a vision-language model, its
layers share their parameters, and the row notes it. On a CPU the default networks are small.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from pathlib import Path

import torch

from auras_ros.bench.figures.paper import finish, with_paper
from auras_ros.bench.options import checking_policies, listed, policy_parser
from auras_ros.bench.policies import auras_plan, build, where_built_as_run
from auras_ros.device import DeviceError
from auras_ros.measure.compare import SPEEDUP_COLUMNS, Job, marked, measure, run_jobs
from auras_ros.measure.cores import suffix, words
from auras_ros.pipeline.plan import Plan
from auras_ros.report.picture import BLUE, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, grouped_by, in_columns

SCALES = {"cuda": (-4, -2, 0, 2, 4), "cpu": (-4, -2, 0, 2)}  # the paper's are the first
DEFAULTS = {"cuda": ("dp-plus", "openvla-7b"), "cpu": ("dp-small", "openvla-small")}
STAGES = 10  # of generation, diffusion
NOTE = (
    "scaled by width; ResNet's layers have at least 16 channels, so a small one shrinks less than its scale: "
    "the row has the real millions of parameters"
)


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("fig14", more={"note": NOTE})
    subjects = {
        f"{name}, perception {perceived:+d}, generation {generated:+d}": partial(_measure, name, perceived, generated)
        for name in options.policy
        for perceived, generated in pairs(options)
    }
    run_jobs(subjects, options, report, progress)
    for (name, cores), rows in grouped_by(report.rows, "policy", "cores").items():
        speedups, ending = [row["speedup"] for row in rows], f"{key(name)}{suffix(cores, options.cores)}"
        report.summary |= {f"least_{ending}": min(speedups), f"most_{ending}": max(speedups)}
    return finish(report)


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
        **where_built_as_run(options.device),
    )
    auras = auras_plan(name, built.policy, options)
    seq = auras.as_mode("seq")
    try:
        with job.bench(built.policy) as bench:
            measured = measure(bench, job, [seq, auras])
    except (torch.cuda.OutOfMemoryError, DeviceError) as error:
        if not any(isinstance(each, torch.cuda.OutOfMemoryError) for each in (error, error.__cause__)):
            raise
        job.report.leave_out(job.what, str(error).splitlines()[0])
        return
    if auras in measured:
        sizes = {"policy": name, "device": bench.device.type, "perception": perception, "generation": generation}
        seq_hz = measured.figures(seq, seq)["rate_hz"]
        job.report.rows.append({**sizes, **built.fields(), "seq_hz": seq_hz, **measured.figures(auras, seq)})


def _options(argv: list[str]) -> argparse.Namespace:
    parser = policy_parser("fig14", __doc__, DEFAULTS, STAGES)
    scales = "exponents of two, as in =-2,0,2 (-4,-2,0,2,4; on a CPU up to 2)"
    parser.add_argument("--perception", type=listed(int), metavar="K,...", help=scales)
    parser.add_argument("--generation", type=listed(int), metavar="K,...", help=scales)
    parser.add_argument("--grid", action="store_true", help="every pair, not each module alone")
    parser.add_argument("--tokens", type=int, default=7, help="tokens of an action, each a stage (7)")
    options = parser.parse_args(argv)
    with checking_policies(parser, options, DEFAULTS) as kind:
        options.perception = options.perception or SCALES[kind]
        options.generation = options.generation or SCALES[kind]
        if sized := [name for name in options.policy if name.startswith("tinyvla")]:
            raise ValueError(f"--policy: '{sized[0]}' has only one size")
        for exponent in (*options.perception, *options.generation):
            if not -8 <= exponent <= 8:
                raise ValueError(f"--perception and --generation: exponents from -8 to 8, got {exponent}")
        Plan("quick", "auras", pp_generation=options.tokens)
    return options


def table(report: Report) -> str:
    """A line for each pair of sizes."""
    return with_paper(report, in_columns(report.rows, COLUMNS))


COLUMNS: tuple[Column, ...] = (
    ("policy", "{policy}"),
    ("perception", "2^{perception}"),
    ("generation", "2^{generation}"),
    ("M", "{perception_million:.1f}"),
    ("M", "{generation_million:.1f}"),
    ("cores", "{cores}"),
    ("seq /s", "{seq_hz:.2f}"),
    ("auras /s", "{rate_hz:.2f}"),
    *SPEEDUP_COLUMNS,
    ("", lambda row: ", ".join(filter(None, ["layers share parameters" if row["shared_layers"] else "", marked(row)]))),
)


def draw(report: Report, path: Path) -> None:
    """For each policy and number of cores the speedup over the scale of each module, the other at its published
    size."""
    groups = grouped_by(report.rows, "policy", "cores")
    with picture(path, "auras over seq by size of the modules, random weights", max(1, len(groups))) as axes:
        for one, ((name, cores), rows) in zip(axes, groups.items(), strict=False):
            for module, other, colour in (("perception", "generation", ORANGE), ("generation", "perception", BLUE)):
                line = sorted((row for row in rows if row[other] == 0), key=lambda row: row[module])
                at, speedups = [row[module] for row in line], [row["speedup"] for row in line]
                spans = whiskers(line, "speedup", "speedup_low", "speedup_high")
                one.errorbar(at, speedups, spans, fmt="o-", color=colour, capsize=3, label=module)
            one.axhline(1, color="black", linewidth=0.8)
            title = f"{name} on {rows[0]['device']}, {words(cores)} for each side"
            one.set(title=title, xlabel="scale k: about 2^k times the parameters")
            one.set(ylabel="times seq, quartiles", ylim=(0, None))
            legend_below(one)
