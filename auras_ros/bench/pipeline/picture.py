"""The picture of `auras bench pipeline`: rates of the compared variants, and the staleness of each.

A row of two panels for each policy and number of cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from auras_ros.measure.cores import words
from auras_ros.report.picture import COLOURS, whiskers
from auras_ros.report.result import Report

BAR_INCHES, HEAD_INCHES, DPI = 0.26, 1.1, 110


def draw(report: Report, path: Path) -> None:
    """Write the PNG. Raises ValueError if no round was completed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in report.rows if row["measure"] == "rounds"]
    groups = list(dict.fromkeys((row["policy"], row["cores"]) for row in rows))
    if not groups:
        raise ValueError("no complete round was measured: there is nothing to draw")
    own = [[row for row in rows if (row["policy"], row["cores"]) == group] for group in groups]
    heights = [HEAD_INCHES + BAR_INCHES * len(each) for each in own]
    figure = Figure(figsize=(12, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(groups), 2, squeeze=False, height_ratios=heights)
    for (policy, cores), chosen, line in zip(groups, own, panels, strict=True):
        where = f"{policy} on {chosen[0]['device']}, {words(cores)} for each"
        _bars(line[0], chosen, "chunks_per_s", f"{where}: chunks per second (quartiles)")
        _bars(line[1], chosen, "staleness_ms", "mean age of the newest chunk's observation, ms")
        line[1].set_yticklabels([])
    figure.savefig(path, dpi=DPI)


def _bars(axes: Any, rows: Sequence[Mapping[str, Any]], name: str, title: str) -> None:
    """One bar for each row, from the top; hatched if the measurement was disturbed."""
    for at, row in enumerate(rows):
        if row[name] is None:
            continue
        hatch = "//" if row["disturbed"] else None
        axes.barh(at, row[name], 0.7, color=COLOURS[row["mode"]], hatch=hatch, edgecolor="white")
        if name == "chunks_per_s":
            axes.errorbar([row[name]], [at], xerr=whiskers(row, name), color="black", capsize=2, linewidth=1)
    labels = [f"{row['variant']}{' (disturbed)' if row['disturbed'] else ''}" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
