"""`auras bench fig15`: speedup of auras over seq by the number of iterative steps (Auras figure 15).

Autoregressive: by action tokens. Images change with every frame, and no keys and values are kept between frames. seq
decodes with a KV cache; auras has one request for each token, merged into one forward. With fetch_offset 0 perception
and generation run one after the other; the paper's -1 runs them side by side.

Diffusion: by denoising steps, with --stages stages of auras, or one per step if there are fewer.

Both sides have the same cores, first one and then all. First it is checked that both give the same result. Rounds of
both are interleaved in random order, and a ratio is taken within a round. On a GPU autoregressive policies run in
bfloat16, as usual.

In addition to the figure: one static camera beside a moving one, auras with and without the previous frame's keys and
values (plan: reuse=exact). Both cameras are perceived in either case.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from auras_ros.bench.options import add_job_options, bench_parser, check_job_options, listed
from auras_ros.bench.policies import build, where_built, where_built_as_run
from auras_ros.measure.compare import Job, Subjects, marked, measure, run_jobs
from auras_ros.measure.cores import suffix, words
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import Feed
from auras_ros.models.presets import OPENVLAS, RT2S
from auras_ros.pipeline.plan import MAX_STAGES, Plan
from auras_ros.policies.architectures import RECIPES
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.picture import BLUE, GREEN, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report, Say
from auras_ros.report.table import Column, grouped_by, in_columns

TOKENS_ROW, STEPS_ROW, REUSE_ROW = "tokens: auras over seq", "diffusion: auras over seq", "reuse over none"
PAPER = (
    "tokens: proportional to their number; diffusion: a minor degradation where the steps are few (section 6.5; figure "
    "15 has no numbers in the text)"
)
COLUMNS: tuple[Column, ...] = (
    ("compared", "{compared}"),
    ("model", "{model}"),
    ("prefix", "{prefix}"),
    ("steps", "{iterations}"),
    ("cores", "{cores}"),
    ("base /s", "{base_per_s:.2f}"),
    ("other /s", "{other_per_s:.2f}"),
    ("ratio", "{ratio:.2f}"),
    ("quartiles", "{low:.2f} to {high:.2f}"),
    ("rounds", "{rounds}"),
    ("", marked),
)
LINES = (BLUE, ORANGE, GREEN)
HALVES = ("tokens", "diffusion", "reuse")
TOKENS = (1, 2, 4, 7, 14, 28, 56)
PREFIXES = (64, 256)
STEPS = (5, 10, 20, 40, 100)
HEADLINE = {7, 28}
MODELS = [*RT2S, *OPENVLAS]
REUSE_TOKENS = 7
RATIO = {"ratio": "speedup", "low": "speedup_low", "high": "speedup_high"}  # within a round: median and quartiles


def _policy(options: argparse.Namespace, prefix: int, tokens: int, cameras: int = 1) -> LoadedPolicy:
    where = where_built_as_run(options.device)
    del where["free"]  # its layers share no parameters
    return build(options.model, tokens=tokens, prefix=prefix, cameras=cameras, **where).policy


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("fig15", more={"paper": PAPER})
    run_jobs(_subjects(options), options, report, progress)
    return report


def _subjects(options: argparse.Namespace) -> Subjects:
    """The measurements by name."""
    found: dict[str, partial[None]] = {}
    for half in options.half:
        if half == "diffusion":
            found |= {f"{options.diffusion}, {n} steps": partial(_compare_steps, n) for n in options.steps}
            continue
        for prefix in options.prefix:
            what = f"{options.model}, prefix {prefix}"
            if half == "reuse":
                found[f"{what}, reuse"] = partial(_compare_reuse, prefix)
            else:
                found |= {f"{what}, {n} tokens": partial(_compare_tokens, prefix, n) for n in options.tokens}
    return found


def _compare_tokens(prefix: int, tokens: int, job: Job) -> None:
    """seq against auras with a stage for each token."""
    options = job.options
    plans = Plan(), Plan(mode="auras", pp_generation=tokens, fetch_offset=options.fetch_offset)
    named = {"compared": TOKENS_ROW, "model": options.model, "prefix": prefix, "iterations": tokens}
    with job.bench(_policy(options, prefix, tokens)) as bench:
        _measure(bench, job, plans, named, f"auras_over_seq_{tokens}" if tokens in HEADLINE else "")


def _compare_steps(steps: int, job: Job) -> None:
    """seq against auras with --stages stages of denoising."""
    options = job.options
    kind = f"ddpm{steps}"
    plans = Plan(kind), Plan(kind, "auras", pp_generation=min(options.stages, steps))
    named = {"compared": STEPS_ROW, "model": options.diffusion, "prefix": None, "iterations": steps}
    with job.bench(build(options.diffusion, steps=steps, **where_built(options.device)).policy) as bench:
        _measure(bench, job, plans, named, f"auras_over_seq_steps_{steps}")


def _compare_reuse(prefix: int, job: Job) -> None:
    """auras without and with reuse of the static camera's keys and values, which come first in the prefix."""
    options = job.options
    policy = _policy(options, prefix, REUSE_TOKENS, cameras=2)
    plan = Plan(mode="auras", pp_generation=REUSE_TOKENS, fetch_offset=options.fetch_offset)
    named = {"compared": REUSE_ROW, "model": options.model, "prefix": prefix, "iterations": REUSE_TOKENS}
    plans = plan, replace(plan, reuse="exact")
    with job.bench(policy) as bench:
        bench.feed = one_still(policy, options.seed)
        _measure(bench, job, plans, named, "reuse_over_none")


def one_still(policy: LoadedPolicy, seed: int, different: int = 8) -> Feed:
    """Random observations with a constant picture of the first camera."""
    random_ = torch.Generator().manual_seed(seed)
    examples = [policy.example(1, random_) for _ in range(different)]
    for images, _ in examples:
        images[:, :, 0] = examples[0][0][:, :, 0]
    return Feed(examples)


def _measure(bench: Bench, job: Job, plans: tuple[Plan, Plan], named: dict[str, Any], key: str) -> None:
    """Measure both plans in interleaved rounds, add a row, and the speedup of the second plan to the summary
    under `key`, unless that is empty."""
    base, other = plans
    measured = measure(bench, job, plans)
    if other not in measured:
        return
    found, first = measured.figures(other, base), measured.figures(base, base)
    sides = {"base": first, "other": found}
    job.report.rows.append(
        {
            **named,
            "device": bench.device.type,
            "cores": bench.cores,
            "dtype": str(next(bench.policy.parameters()).dtype).removeprefix("torch."),
            **{side: each["plan"] for side, each in sides.items()},
            **{f"{side}_threads": each["threads"] for side, each in sides.items()},
            **{f"{side}_per_s": each["rate_hz"] for side, each in sides.items()},
            **{name: found[kept] for name, kept in RATIO.items()},
            **{f"staleness_ms_{side}": each["staleness_ms"] for side, each in sides.items()},
            "rounds": found["rounds"],
            "disturbed": found["disturbed"] or first["disturbed"],
        }
    )
    if key:
        prefix, options = named["prefix"], job.options
        ending = "" if prefix in (None, options.prefix[0]) else f"_prefix_{prefix}"
        job.report.summary[f"{key}{ending}{suffix(bench.cores, options.cores)}"] = found["speedup"]


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = bench_parser("fig15", __doc__)
    add = parser.add_argument
    add("--half", type=listed(str, HALVES), default=list(HALVES), help=f"some of {','.join(HALVES)} (all)")
    add("--model", choices=MODELS, default="rt2-small", help="autoregressive model (rt2-small)")
    add("--prefix", type=listed(int), default=list(PREFIXES), help="lengths of the prefix (64,256)")
    add("--tokens", type=listed(int), default=list(TOKENS), help="action tokens (1,2,4,7,14,28,56)")
    add("--diffusion", choices=list(RECIPES), default="dp-small", help="diffusion policy (dp-small)")
    add("--steps", type=listed(int), default=list(STEPS), help="denoising steps (5,10,20,40,100)")
    add("--stages", type=int, default=10, help="auras' stages of denoising (10)")
    add("--fetch-offset", type=int, choices=(-1, 0), default=0, help="auras' offset for tokens (0; the paper's is -1)")
    add_job_options(parser, minutes=30.0)
    options = parser.parse_args(argv)
    if not 1 <= min(options.tokens) <= max(options.tokens) <= MAX_STAGES:
        parser.error(f"--tokens: a plan has 1 to {MAX_STAGES} stages")
    if min(options.prefix) < 2:
        parser.error("--prefix must be at least 2")
    if "reuse" in options.half and min(options.prefix) < 3:
        parser.error("--prefix must be at least 3 for the two cameras of --half reuse")
    if min(options.steps) < 2:
        parser.error("--steps must be at least 2")
    if not 1 <= options.stages <= MAX_STAGES:
        parser.error(f"--stages: a plan has 1 to {MAX_STAGES}, got {options.stages}")
    check_job_options(parser, options)
    return options


def table(report: Report) -> str:
    """One line for each comparison."""
    summary = [f"{name} {value:.2f}" for name, value in report.summary.items()]
    return "\n".join([f"paper: {PAPER}", *in_columns(report.rows, COLUMNS), *summary])


def draw(report: Report, path: Path) -> None:
    """Speedup over the iterative steps, a panel for each half and number of cores. Raises ValueError if nothing was
    measured."""
    panels = grouped_by((row for row in report.rows if row["compared"] != REUSE_ROW), "compared", "cores")
    if not panels:
        raise ValueError("nothing was measured: there is nothing to draw")
    with picture(path, "figure 15: auras over seq by iterative steps, random weights", len(panels)) as axes:
        for one, ((compared, cores), own) in zip(axes, panels.items(), strict=True):
            for colour, ((prefix,), line) in zip(LINES, grouped_by(own, "prefix").items(), strict=False):
                line.sort(key=lambda row: row["iterations"])
                label = line[0]["model"] if prefix is None else f"{line[0]['model']}, prefix {prefix}"
                at, ratios = [row["iterations"] for row in line], [row["ratio"] for row in line]
                one.errorbar(at, ratios, whiskers(line, "ratio"), fmt="o-", color=colour, capsize=3, label=label)
            one.axhline(1, color="black", linewidth=0.8)
            what = "denoising steps" if compared == STEPS_ROW else "action tokens"
            one.set(xlabel=what, ylabel="times seq, median and quartiles", ylim=(0, None))
            one.set_title(f"{compared} on {own[0]['device']}, {words(cores)} for each side")
            legend_below(one)
