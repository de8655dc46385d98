"""The results of `auras bench fig15` as a table and as a picture. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auras_ros.measure.compare import marked
from auras_ros.measure.cores import words
from auras_ros.report.picture import BLUE, GREEN, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import aligned

TOKENS_ROW, STEPS_ROW, REUSE_ROW = "tokens: auras over seq", "diffusion: auras over seq", "reuse over none"
PAPER = (
    "tokens: proportional to their number; diffusion: a minor degradation where the steps are few (section 6.5; figure "
    "15 has no numbers in the text)"
)
COLUMNS = ("compared", "model", "prefix", "steps", "cores", "base /s", "other /s", "ratio", "quartiles", "rounds", "")
LINES = (BLUE, ORANGE, GREEN)


def table(report: Report) -> str:
    """One line for each comparison."""
    rows = [COLUMNS, *(_cells(row) for row in report.rows)]
    notes = [str(report.more["interrupted"])] if "interrupted" in report.more else []
    summary = [f"{name} {value:.2f}" for name, value in report.summary.items()]
    return "\n".join([f"paper: {PAPER}", *aligned(rows), *summary, *notes])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (row["model"], "-" if row["prefix"] is None else str(row["prefix"]), str(row["iterations"]))
    rates = (f"{row['base_per_s']:.2f}", f"{row['other_per_s']:.2f}", f"{row['ratio']:.2f}")
    quartiles = f"{row['low']:.2f} to {row['high']:.2f}"
    return (row["compared"], *counts, str(row["cores"]), *rates, quartiles, str(row["rounds"]), marked(row))


def draw(report: Report, path: Path) -> None:
    """Speedup over the iterative steps, a panel for each half and number of cores. Raises ValueError if nothing was
    measured."""
    rows = [row for row in report.rows if row["compared"] != REUSE_ROW]
    panels = list(dict.fromkeys((row["compared"], row["cores"]) for row in rows))
    if not panels:
        raise ValueError("nothing was measured: there is nothing to draw")
    with picture(path, "figure 15: auras over seq by iterative steps, random weights", len(panels)) as axes:
        for one, (compared, cores) in zip(axes, panels, strict=True):
            own = [row for row in rows if (row["compared"], row["cores"]) == (compared, cores)]
            for colour, prefix in zip(LINES, dict.fromkeys(row["prefix"] for row in own), strict=False):
                line = sorted((row for row in own if row["prefix"] == prefix), key=lambda row: row["iterations"])
                label = line[0]["model"] if prefix is None else f"{line[0]['model']}, prefix {prefix}"
                spans = [[span[side][0] for span in (whiskers(row, "ratio") for row in line)] for side in (0, 1)]
                at, ratios = [row["iterations"] for row in line], [row["ratio"] for row in line]
                one.errorbar(at, ratios, spans, fmt="o-", color=colour, capsize=3, label=label)
            one.axhline(1, color="black", linewidth=0.8)
            one.set_title(f"{compared} on {own[0]['device']}, {words(cores)} for each side", fontsize=9)
            what = "denoising steps" if compared == STEPS_ROW else "action tokens"
            one.set(xlabel=what, ylabel="times seq, median and quartiles", ylim=(0, None))
            legend_below(one)
