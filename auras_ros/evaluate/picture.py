"""The rows of an evaluation as one picture: success, the difference from seq, and staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = {"seq": "#4c4f56", "dec": "#8c6bb1", "par": "#d9822b", "par-aligned": "#e8b04a", "auras": "#1f77b4"}
Row = Mapping[str, Any]


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write a PNG: a row of three panels for each clock."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    clocks = list(dict.fromkeys(row["clock"] for row in rows))
    figure = Figure(figsize=(11, 0.6 + 2.9 * len(clocks)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(len(clocks), 3, squeeze=False)
    for line, clock in zip(panels, clocks, strict=True):
        of_clock = [row for row in rows if row["clock"] == clock]
        for panel, axes in zip((_success, _difference, _staleness), line, strict=True):
            panel(axes, of_clock)
            _tidy(axes)
        line[0].set_ylabel(f"{clock} clock", fontsize=10)
    figure.savefig(path, dpi=110)


def _success(axes: Any, rows: Sequence[Row]) -> None:
    names = [row["mode"] for row in rows]
    shares = [row["success"] for row in rows]
    below = [max(0.0, row["success"] - row["low"]) for row in rows]
    above = [max(0.0, row["high"] - row["success"]) for row in rows]
    axes.bar(names, shares, color=[COLOURS[name] for name in names], width=0.6)
    axes.errorbar(names, shares, yerr=[below, above], fmt="none", ecolor="black", capsize=4)
    for i, row in enumerate(rows):
        axes.text(i, row["high"] + 0.02, f"{row['success']:.1%}", ha="center", fontsize=8)
    axes.set(title=f"success, 95 % Wilson, n = {rows[0]['episodes']}", ylim=(0, 1.12))


def _difference(axes: Any, rows: Sequence[Row]) -> None:
    compared = [row for row in rows if row["diff"] is not None and row["mode"] != "seq"]
    axes.axhline(0, color="black", linewidth=0.8)
    for row in compared:
        diff, low, high = (100 * row[key] for key in ("diff", "diff_low", "diff_high"))
        span = [[max(0.0, diff - low)], [max(0.0, high - diff)]]
        axes.errorbar([row["mode"]], [diff], yerr=span, fmt="o", color=COLOURS[row["mode"]], capsize=4)
    axes.set(title="success minus that of seq, same seeds, points")
    axes.margins(x=0.2)


def _staleness(axes: Any, rows: Sequence[Row]) -> None:
    """Bars show the mean, the tick above the 99th percentile."""
    acted = [row for row in rows if row["staleness_ms_mean"] is not None]
    names = [row["mode"] for row in acted]
    axes.bar(names, [row["staleness_ms_mean"] for row in acted], color=[COLOURS[name] for name in names], width=0.6)
    axes.plot(names, [row["staleness_ms_p99"] for row in acted], "_", color="black", markersize=18)
    axes.set(title="age of executed actions, ms: mean, 99 %", ylim=(0, None))


def _tidy(axes: Any) -> None:
    axes.title.set_fontsize(9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
