"""The results of `auras bench pipeline` as a table, and as a picture of rates and staleness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros.measure.compare import marked
from auras_ros.measure.cores import words
from auras_ros.measure.same import equal_words
from auras_ros.report.picture import COLOURS, canvas, tidy, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import Column, Row, grouped_by, in_columns

BAR_INCHES, HEAD_INCHES = 0.26, 1.1


def table(report: Report) -> str:
    """For each policy and number of cores the check, the trials and the rounds; then the main ratios."""
    lines: list[str] = []
    for rows in grouped_by(report.rows, "policy", "cores").values():
        measures = grouped_by(rows, "measure")
        for name, section in SECTIONS.items():
            lines += section(measures[name,]) if (name,) in measures else []
    for key, value in report.summary.items():
        low, high = report.summary.get(f"{key}_low"), report.summary.get(f"{key}_high")
        if low is not None and high is not None:
            lines.append(f"{key:44}{value:8.2f}  ({low:.2f} to {high:.2f})")
    return "\n".join(lines)


def _check(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    where = f"{row['device']}, {words(row['cores'])} for each"
    return [
        f"{row['policy']}: {row['million']:.1f} M parameters, {row['steps']} steps, {where}",
        f"  checked: seq and auras in one stage, unbatched, give the same chunks {equal_words(row)};",
        f"  batched in {row['pp_generation']} stages: difference at most {row['batched_difference']:.2g} of the range",
    ]


RATES: tuple[Column, ...] = (
    ("chunks/s", "{chunks_per_s:.2f}"),
    ("quartiles", "{low:.2f} to {high:.2f}"),
    ("/ seq", "{over_seq:.2f}"),
    ("stale ms", "{staleness_ms:.0f}"),
    ("n", "{n}"),
    ("", marked),
)
MEMORY: tuple[Column, ...] = (
    ("  memory, bytes per chunk", "    {mode}"),
    ("tracemalloc", "{python_bytes_per_chunk:.1f}"),
    ("resident", "{resident_bytes_per_chunk:.0f}"),
    ("chunks", "{chunks}"),
)


def _rates(title: str, rows: Sequence[Row]) -> list[str]:
    what = f"  {title}, {words(rows[0]['cores'])} for each"
    return in_columns(rows, ((what, "    {variant}"), *RATES))


def _rounds(rows: Sequence[Row]) -> list[str]:
    stale = "  stale: mean age of the observation behind the newest chunk"
    return [*_rates("in interleaved rounds", rows), stale]


SECTIONS: dict[str, Callable[[Sequence[Row]], list[str]]] = {
    "check": _check,
    "trial": partial(_rates, "tried"),
    "rounds": _rounds,
    "memory": partial(in_columns, columns=MEMORY),
}


def draw(report: Report, path: Path) -> None:
    """A PNG with a row of two panels for each policy and number of cores. Raises ValueError if no round was
    completed."""
    groups = grouped_by((row for row in report.rows if row["measure"] == "rounds"), "policy", "cores")
    if not groups:
        raise ValueError("no complete round was measured: there is nothing to draw")
    heights = [HEAD_INCHES + BAR_INCHES * len(each) for each in groups.values()]
    with canvas(path, (12, sum(heights))) as figure:
        panels = figure.subplots(len(groups), 2, squeeze=False, height_ratios=heights)
        for ((policy, cores), rows), line in zip(groups.items(), panels, strict=True):
            where = f"{policy} on {rows[0]['device']}, {words(cores)} for each"
            _bars(line[0], rows, "chunks_per_s", f"{where}: chunks per second (quartiles)")
            _bars(line[1], rows, "staleness_ms", "mean age of the newest chunk's observation, ms")
            line[1].set_yticklabels([])


def _bars(axes: Any, rows: Sequence[Row], name: str, title: str) -> None:
    """One bar for each row, from the top; hatched if the measurement was disturbed."""
    for at, row in enumerate(rows):
        if row[name] is None:
            continue
        hatch = "//" if row["disturbed"] else None
        axes.barh(at, row[name], 0.7, color=COLOURS[row["mode"]], hatch=hatch, edgecolor="white")
        if name == "chunks_per_s":
            axes.errorbar([row[name]], [at], xerr=whiskers([row], name), color="black", capsize=2, linewidth=1)
    labels = [f"{row['variant']}{' (disturbed)' if row['disturbed'] else ''}" for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(title, fontsize=9, loc="left")
    tidy(axes, grid="x")
