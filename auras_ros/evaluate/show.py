"""The rows of an evaluation as text for a terminal, and as a picture of success, difference from seq and staleness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.report.picture import COLOURS, canvas, tidy, whiskers
from auras_ros.report.table import Column, Row, grouped_by, in_columns, points


def success_columns(other: str, diff: str, low: str, high: str, digits: int = 0) -> tuple[Column, ...]:
    """Success with its 95 % interval of so many digits; the fields of its difference from `other`, with theirs."""
    return (
        ("success", "{success:.1%}"),
        ("95 %", f"{{low:.{digits}%}} to {{high:.{digits}%}}"),
        (f"- {other}", points(diff)),
        ("95 %", points(low, high)),
    )


REFUSED: Column = ("", lambda row: f"the agent would refuse it: {row['refused']}" if row["refused"] else "")


def _ages(row: Row) -> str:
    ages = [value for key, value in row.items() if key.startswith("context_age_ms_")]
    return " to ".join(f"{age:.0f}" for age in dict.fromkeys([ages[0], ages[-1]])) if ages else "-"


COLUMNS: tuple[Column, ...] = (
    ("clock", "{clock}"),
    ("mode", "{mode}"),
    *success_columns("seq", "diff", "diff_low", "diff_high", digits=1),
    ("frame ms", "{frame_ms:.0f}"),
    ("chunks/s", "{chunks_per_s:.2f}"),
    ("context ms", _ages),
    ("stale ms", "{staleness_ms_mean:.0f}"),
    ("p99", "{staleness_ms_p99:.0f}"),
    ("steps", "{steps_to_success:.0f}"),
    ("frames", "{frames_both:.0f} / {frames_both_seq:.0f}"),
    ("holds", "{hold_share:.1%}"),
)


def table(rows: Sequence[Row]) -> str:
    """One aligned line for each row; a dash marks missing values.

    context ms: mean age of the context at the first and the last generation stage. steps: median to success. frames:
    mean number of the executor's frames until success, beside seq's, over the seeds that both solve (Auras 4.2.4).
    """
    shown = [{**row, "diff": None, "diff_low": None} if row["mode"] == "seq" else row for row in rows]
    return "\n".join(in_columns(shown, COLUMNS, left=(0, 1)))


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write a PNG: a row of three panels for each clock."""
    clocks = grouped_by(rows, "clock")
    with canvas(path, (11, 0.6 + 2.9 * len(clocks))) as figure:
        figure.suptitle(title, fontsize=10)
        panels = figure.subplots(len(clocks), 3, squeeze=False)
        for line, ((clock,), of_clock) in zip(panels, clocks.items(), strict=True):
            for panel, axes in zip((_success, _difference, _staleness), line, strict=True):
                panel(axes, of_clock)
                tidy(axes)
            line[0].set_ylabel(f"{clock} clock", fontsize=10)


def _success(axes: Any, every: Sequence[Row]) -> None:
    rows = [row for row in every if row["success"] is not None]
    modes, shares = [row["mode"] for row in rows], [row["success"] for row in rows]
    colours = [COLOURS[mode] for mode in modes]
    axes.bar(modes, shares, 0.6, color=colours, yerr=whiskers(rows, "success"), capsize=4)
    for i, row in enumerate(rows):
        axes.text(i, row["high"] + 0.02, f"{row['success']:.1%}", ha="center", fontsize=8)
    axes.set(title=f"success, 95 % Wilson, n = {every[0]['episodes']}", ylim=(0, 1.12))


def _difference(axes: Any, rows: Sequence[Row]) -> None:
    axes.axhline(0, color="black", linewidth=0.8)
    for row in rows:
        if row["diff"] is not None and row["mode"] != "seq":
            percent = {name: 100 * row[name] for name in ("diff", "diff_low", "diff_high")}
            span = whiskers([percent], "diff", "diff_low", "diff_high")
            axes.errorbar([row["mode"]], [percent["diff"]], span, fmt="o", color=COLOURS[row["mode"]], capsize=4)
    axes.set(title="success minus that of seq, same seeds, points")
    axes.margins(x=0.2)


def _staleness(axes: Any, rows: Sequence[Row]) -> None:
    """Bars show the mean, the tick above the 99th percentile."""
    acted = [row for row in rows if row["staleness_ms_mean"] is not None]
    names = [row["mode"] for row in acted]
    axes.bar(names, [row["staleness_ms_mean"] for row in acted], color=[COLOURS[name] for name in names], width=0.6)
    axes.plot(names, [row["staleness_ms_p99"] for row in acted], "_", color="black", markersize=18)
    axes.set(title="age of executed actions, ms: mean, 99 %", ylim=(0, None))
