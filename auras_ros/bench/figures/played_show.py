"""The rates and success of a figure as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.bench.figures.rates import rate_lines
from auras_ros.report.picture import BLUE, GREEN, GREY, ORANGE, legend_below, picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import aligned

COLUMNS = ("plan", "clock", "cores", "chunks/s", "x seq", "episodes", "success", "95 %", "- seq", "95 %", "age ms", "")


def found(rows: Sequence[dict[str, Any]], clock: str, **fields: Any) -> dict[str, Any] | None:
    """The first row of a clock with these fields, or None."""
    for row in rows:
        if row["clock"] == clock and all(row[name] == value for name, value in fields.items()):
            return row
    return None


def lines(report: Report) -> list[str]:
    """A line for each played plan, then the rates of an architecture, if they were measured."""
    played = [row for row in report.rows if row["measure"] == "played"]
    shown = [str(report.more["title"]), *aligned(list(dict.fromkeys([COLUMNS, *(_cells(row) for row in played)])))]
    return [*shown, *rate_lines([row for row in report.rows if row["measure"] == "rate"])]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    played, compared = row["success"] is not None, row.get("above_seq") is not None
    note = f"the agent would refuse it: {row['refused']}" if row["refused"] else ""
    return (
        f"{row['plan']}{' plain' if row['plain'] else ''}",
        row["clock"],
        str(row["cores"]),
        f"{row['rate_hz']:.2f}",
        f"{row['speedup']:.2f}",
        str(row["episodes"]) if played else "-",
        f"{row['success']:.1%}" if played else "-",
        f"{row['low']:.0%} to {row['high']:.0%}" if played else "-",
        f"{100 * row['above_seq']:+.1f}" if compared else "-",
        f"{100 * row['above_low']:+.1f} to {100 * row['above_high']:+.1f}" if compared else "-",
        "-" if row.get("staleness_ms") is None else f"{row['staleness_ms']:.0f}",
        note,
    )


def draw_panels(report: Report, panels: Sequence[str], labels: Sequence[str], path: Path) -> None:
    """The panels side by side. labels: of each panel's x axis."""
    played = [row for row in report.rows if row["measure"] == "played"]
    with picture(path, str(report.more["title"]), len(panels)) as axes:
        for one, panel, label in zip(axes, panels, labels, strict=True):
            draw_panel(one, played, panel, label)


def draw_panel(axes: Any, rows: Sequence[dict[str, Any]], panel: str, label: str) -> None:
    """Success over `at` on each clock, and the rate on a second axis."""
    own = [row for row in rows if row["panel"] == panel]
    colours = {"paused": BLUE, "charged": ORANGE}
    for clock in dict.fromkeys(row["clock"] for row in own):
        played = [row for row in own if row["clock"] == clock and row["success"] is not None]
        at, share = [row["at"] for row in played], [row["success"] for row in played]
        axes.plot(at, share, "o-", color=colours[clock], label=f"success, {clock} clock")
        for row in played:
            axes.errorbar([row["at"]], [row["success"]], whiskers(row, "success"), color=colours[clock], capsize=3)
        seq = found(rows, clock, mode="seq", panel="")
        if seq is not None and seq["success"] is not None:
            axes.axhline(seq["success"], color=colours[clock], linestyle=":", linewidth=1)
    once = list({row["at"]: row for row in own}.values())
    beside = axes.twinx()
    beside.plot([row["at"] for row in once], [row["rate_hz"] for row in once], "s--", color=GREEN, markersize=4)
    beside.set_ylim(0, 1.08 * max((row["rate_hz"] for row in once), default=1.0))
    beside.set_ylabel("chunks per second (squares)", fontsize=8, color=GREEN)
    axes.set(title=f"{panel}", xlabel=label, ylim=(-0.02, 1.02))
    axes.set_ylabel("success, 95 % Wilson; dotted: seq", fontsize=8, color=GREY)
    axes.set_xticks([row["at"] for row in once])
    axes.title.set_fontsize(9)
    legend_below(axes)
