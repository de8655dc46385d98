"""`auras bench fig16`: throughput of TinyVLA (a language model as encoder) over its stages (Auras figure 16).

Every pair of pp_perception 1 to 3 and pp_generation 1 to 5 with fetch_offset 0 and -1, and seq, for the three published
sizes. On a CPU a quarter of each size runs (`models.presets`); on a GPU the paper's. Weights and observations are
random. First it is checked that the modes compute the same. Rounds of all plans are interleaved in random order, and a
ratio is taken within a round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.options import add_job_options, bench_parser, check_job_options, check_stages, listed, refusing
from auras_ros.measure.compare import Job, Measured, measure, run_jobs
from auras_ros.measure.cores import suffix, words
from auras_ros.measure.same import batched_difference, equal_fields, equal_words
from auras_ros.models.presets import QUARTER, TINYVLAS
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.tinyvla import INFERENCE_STEPS, TinyVlaPolicy, make_tinyvla
from auras_ros.report.picture import ORANGE, canvas
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Row, aligned, grouped_by

MODELS = ("tinyvla-400m", "tinyvla-700m", "tinyvla-1.3b")
WANTED = 2.0  # speedup over seq that the paper's user requires (section 6.6)
PAPER = (
    "the difference between the offsets is not prominent; for twice the throughput, with fetch_offset -1, the "
    "configurations that give it are simulated further (section 6.6; figure 16 has no numbers in the text)"
)
OFFSETS = (0, -1)
PANEL_INCHES = (4.6, 2.7)
DARK = 0.6  # share of the colour range from which text is white


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("fig16", more={"paper": PAPER})
    run_jobs({model: partial(_measure, model) for model in options.models}, options, report, progress)
    return report


def plans_of(options: argparse.Namespace) -> tuple[Plan, list[Plan]]:
    """(seq, all of the figure's plans)."""
    generation = f"ddim{options.steps}"
    counts = product(options.offsets, options.pp_perception, options.pp_generation)
    return Plan(generation), [
        Plan(generation, "auras", pp_perception=p, pp_generation=g, fetch_offset=offset) for offset, p, g in counts
    ]


def _measure(model: str, job: Job) -> None:
    """Check and compare one model, and add the results to the report."""
    options, report = job.options, job.report
    name = model if options.paper_sizes else model + QUARTER
    job.say(f"{job.what}: building, checking that the modes compute the same ...")
    policy = make_tinyvla(name, seed=0, steps=options.steps)
    seq, plans = plans_of(options)
    with job.bench(policy) as bench:
        base = {"model": model, "sizes": name, "device": bench.device.type, "cores": job.cores}
        stages = max(options.pp_generation)
        differ = {"pp_generation": stages, "batched_difference": batched_difference(bench, seq.generation, stages)}
        measured = measure(bench, job, [seq, *plans])
    report.rows.append(
        {**base, "measure": "check", **equal_fields(measured.difference), **_shapes(name, policy), **differ}
    )
    there = [plan for plan in plans if plan in measured]
    report.rows += [_row(base, plan, measured.figures(plan, seq)) for plan in (seq, *there)]
    report.summary |= _summary(model, suffix(job.cores, options.cores), measured, seq, there)


def _shapes(name: str, policy: TinyVlaPolicy) -> dict[str, Any]:
    """The sizes of the parts and of the whole model."""
    config = TINYVLAS[name]
    vision, language = config.vision, config.language
    return {
        "million": sum(part.numel() for part in policy.parameters()) / 1e6,
        "steps": policy.steps,
        "prefix": sum(policy.encoder.prefix.segments),
        "image_px": vision.image_px,
        "vision": f"{vision.depth} x {vision.width}",
        "language": f"{language.layers} x {language.width}",
        "unet": "-".join(map(str, config.down_dims)),
    }


def _row(base: Row, plan: Plan, found: Row) -> dict[str, Any]:
    """chunks_per_s: median; over_seq: median and quartiles of the ratios within each round."""
    named = {"mode": plan.mode, "pp_perception": plan.pp_perception, "pp_generation": plan.pp_generation}
    figures = {"chunks_per_s": found["rate_hz"], "n": found["rounds"], "threads": found["threads"]}
    ratios = {f"over_seq{end}": found[f"speedup{end}"] for end in ("", "_low", "_high")}
    more = {"staleness_ms": found["staleness_ms"], "disturbed": found["disturbed"]}
    return {**base, "measure": "rounds", **named, "fetch_offset": plan.fetch_offset, **figures, **ratios, **more}


def _summary(model: str, ending: str, measured: Measured, seq: Plan, plans: Sequence[Plan]) -> dict[str, float]:
    """For one model: seq's rate, the best speedup of each offset, how many plans of each offset are at least twice as
    fast as seq, and the speedup of offset -1 over 0 with the same stages (median, least, most)."""
    name = key(model) + ending
    over = {plan: measured.figures(plan, seq)["speedup"] for plan in plans}
    found: dict[str, float] = {f"seq_per_s_{name}": measured.figures(seq, seq)["rate_hz"]}
    for offset, word in ((0, "offset_0"), (-1, "offset_before")):
        ratios = [value for plan, value in over.items() if plan.fetch_offset == offset]
        if ratios:
            found[f"best_over_seq_{word}_{name}"] = max(ratios)
            found[f"twice_seq_{word}_{name}"] = sum(value >= WANTED for value in ratios)
    steps = [(plan, replace(plan, fetch_offset=0)) for plan in plans if plan.fetch_offset == -1]
    beside = [measured.figures(before, now)["speedup"] for before, now in steps if now in plans]
    if beside:
        names = (f"before_over_0_{name}{end}" for end in ("", "_least", "_most"))
        found |= dict(zip(names, (median(beside), min(beside), max(beside)), strict=True))
    return found


def table(report: Report) -> str:
    """For each model its sizes and a grid for each offset; at the top the paper's figures."""
    lines = [f"paper: {PAPER}"]
    for rows in grouped_by(report.rows, "model", "cores").values():
        lines += _head(rows[0])
        lines += [line for offset in OFFSETS for line in _grid(rows, offset)]
    return "\n".join([*lines, *(f"{name:40} {value:8.2f}" for name, value in report.summary.items())])


def _head(row: Row) -> list[str]:
    parts = f"CLIP {row['vision']} at {row['image_px']} px, Pythia {row['language']}, U-Net {row['unet']}"
    where = f"{row['device']}, {words(row['cores'])} for each plan"
    return [
        f"{row['model']}, run as {row['sizes']}: {row['million']:.1f} M parameters, {where}",
        f"  {parts}; a prefix of {row['prefix']} tokens, {row['steps']} steps",
        f"  checked: seq and auras in one stage, unbatched, give the same chunks {equal_words(row)}; batched in",
        f"  {row['pp_generation']} stages they differ by at most {row['batched_difference']:.2g} of the action range",
    ]


def _grid(rows: Sequence[Row], offset: int) -> list[str]:
    """A line for each pp_perception: chunks per second and the speedup over seq; * marks at least twice."""
    plans = grouped_by((row for row in rows if row["measure"] == "rounds"), "mode", "fetch_offset")
    cells = {(row["pp_perception"], row["pp_generation"]): row for row in plans.get(("auras", offset), [])}
    if not cells:
        return []
    columns = sorted({generation for _, generation in cells})
    (seq,) = plans["seq", 0]
    title = f"  fetch_offset {offset}; seq {seq['chunks_per_s']:.2f} chunks/s, {seq['n']} rounds"
    lines = [["    pp_generation", *map(str, columns)]]
    for row in sorted({perception for perception, _ in cells}):
        lines.append([f"    pp_perception {row}", *(_cell(cells.get((row, column))) for column in columns)])
    return [title, *aligned(lines)]


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"{row['chunks_per_s']:.2f} ({row['over_seq']:.2f}){'*' if row['over_seq'] >= WANTED else ' '}"


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = bench_parser("fig16", __doc__)
    known = listed(str, MODELS)
    parser.add_argument("--models", type=known, default=list(MODELS), help=f"some of {','.join(MODELS)} (all)")
    parser.add_argument("--sizes", default="auto", choices=("auto", "quarter", "paper"), help="paper's on a GPU (auto)")
    parser.add_argument("--pp-perception", type=listed(int), default=[1, 2, 3], help="stages (1,2,3)")
    parser.add_argument("--pp-generation", type=listed(int), default=[1, 2, 3, 4, 5], help="stages (1,2,3,4,5)")
    parser.add_argument("--offsets", type=listed(int), default=[0, -1], help="fetch_offset (0,-1); or =-1,0")
    parser.add_argument("--steps", type=int, default=INFERENCE_STEPS, help=f"DDIM steps ({INFERENCE_STEPS})")
    add_job_options(parser, minutes=30.0)
    options = parser.parse_args(argv)
    kind = check_job_options(parser, options, steps=1)
    with refusing(parser, ValueError):
        plans_of(options)
    check_stages(parser, max(options.pp_generation), options.steps)
    options.paper_sizes = options.sizes == "paper" or (options.sizes == "auto" and kind == "cuda")
    return options


def draw(report: Report, path: Path) -> None:
    """A grid of stages for each model and offset, coloured by the speedup over seq. As in the paper, plans of
    fetch_offset -1 with at least twice seq's rate are framed. Raises ValueError if nothing was measured."""
    rows = [row for row in report.rows if row["measure"] == "rounds" and row["mode"] == "auras"]
    if not rows:
        raise ValueError("no plan was measured: there is nothing to draw")
    models = grouped_by(rows, "model", "cores")
    offsets = [offset for offset in OFFSETS if any(row["fetch_offset"] == offset for row in rows)]
    most = max(WANTED, *(row["over_seq"] for row in rows))
    with canvas(path, (PANEL_INCHES[0] * len(offsets), PANEL_INCHES[1] * len(models))) as figure:
        panels = figure.subplots(len(models), len(offsets), squeeze=False)
        for line, ((_, cores), own) in zip(panels, models.items(), strict=True):
            for axes, offset in zip(line, offsets, strict=True):
                chosen = [row for row in own if row["fetch_offset"] == offset]
                if not chosen:
                    axes.set_axis_off()
                    continue
                _draw_grid(axes, chosen, most)
                where = f"{chosen[0]['device']}, {words(cores)} for each"
                axes.set_title(f"{chosen[0]['sizes']}, fetch_offset {offset} ({where})", fontsize=9)
        figure.suptitle("TinyVLA: chunks per second, and times seq's in the same round", fontsize=10)


def _draw_grid(axes: Any, rows: Sequence[Row], most: float) -> None:
    from matplotlib.patches import Rectangle

    across = sorted({row["pp_generation"] for row in rows})
    down = sorted({row["pp_perception"] for row in rows})
    values = np.full((len(down), len(across)), np.nan)
    for row in rows:
        y, x = down.index(row["pp_perception"]), across.index(row["pp_generation"])
        values[y, x] = row["over_seq"]
        colour = "white" if row["over_seq"] > DARK * most else "#222222"
        text = f"{row['chunks_per_s']:.2f}\n{row['over_seq']:.2f}×"
        axes.text(x, y, text, ha="center", va="center", fontsize=8, color=colour)
        if row["fetch_offset"] == -1 and row["over_seq"] >= WANTED:
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=ORANGE, lw=2.0))
    axes.imshow(values, cmap="Blues", vmin=0.0, vmax=most, aspect="auto")
    axes.set_xticks(range(len(across)), [str(count) for count in across], fontsize=8)
    axes.set_yticks(range(len(down)), [str(count) for count in down], fontsize=8)
    axes.set_xlabel("pp_generation", fontsize=8)
    axes.set_ylabel("pp_perception", fontsize=8)
