"""The results of `auras bench seams` as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.report.picture import picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import aligned

COLUMNS = (
    "join",
    "mode",
    "latency ms",
    "episodes",
    "success",
    "95 %",
    "- switch",
    "95 %",
    "seams",
    "jump px: max",
    "p99",
    "median",
    "limited",
    "disagree px: max",
    "p99",
    "median",
    "within px: max",
    "any step px: max",
    "holds",
    "stale ms",
    "",
)
NOTE = (
    "jump: of the published command from the tick before a seam to its first, the policy's own motion included;\n"
    "disagree: of the two chunks for that tick; limited: seams at which a limit changed the command;\n"
    "within: largest step inside a chunk: there a blend and a limit continue, and a frozen prefix ends;\n"
    "any step: the larger of both. A guided chunk begins with actions of the one before: its jump is 0 by construction"
)
PANELS = (
    ("jump_max_px", "largest jump where the chunk changes, px"),
    ("step_max_px", "largest step anywhere, px"),
    ("disagreement_p99_px", "disagreement, 99th percentile, px"),
)
COLOURS = ("#4c4f56", "#1f77b4", "#8c6bb1", "#3d8f5f", "#d9822b", "#b5402f", "#7f7f00", "#008b8b")
HALF_MS, ASIDE_MS = 50.0, 6.0  # with a single latency: half of the axis, and the distance between the ways of joining
LINES = {"seq": "-", "auras": "--"}


def table(report: Report) -> str:
    """A line for each way of joining under each latency, with a dash for a value that was not measured."""
    rows = aligned([COLUMNS, *(_cells(row) for row in report.rows)])
    notes = [NOTE, *(str(report.more[name]) for name in ("interrupted",) if name in report.more)]
    return "\n".join([str(report.more["title"]), *rows, *notes])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    compared = row["above_switch"] is not None and row["join"] != "switch"
    return (
        row["join"],
        row["mode"],
        f"{row['latency_ms']:g}",
        str(row["episodes"]),
        f"{row['success']:.1%}",
        f"{row['low']:.0%} to {row['high']:.0%}",
        f"{100 * row['above_switch']:+.1f}" if compared else "-",
        f"{100 * row['above_low']:+.1f} to {100 * row['above_high']:+.1f}" if compared else "-",
        str(row["seams"]),
        *(_px(row[f"jump_{name}_px"]) for name in ("max", "p99", "median")),
        "-" if row["limited_share"] is None else f"{row['limited_share']:.0%}",
        *(_px(row[f"disagreement_{name}_px"]) for name in ("max", "p99", "median")),
        _px(row["within_max_px"]),
        _px(row["step_max_px"]),
        f"{row['hold_share']:.1%}",
        "-" if row["staleness_ms"] is None else f"{row['staleness_ms']:.0f}",
        f"the agent would refuse it: {row['refused']}" if row["refused"] else "",
    )


def _px(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def draw(report: Report, path: Path) -> None:
    """Jumps, disagreements and success over the latency, a line for each way of joining. Raises ValueError if nothing
    was played."""
    if not report.rows:
        raise ValueError("nothing was played: there is nothing to draw")
    names = list(dict.fromkeys(row["join"] for row in report.rows))
    groups = list(dict.fromkeys((row["mode"], row["join"]) for row in report.rows))
    latencies = sorted({row["latency_ms"] for row in report.rows})
    several = len({mode for mode, _ in groups}) > 1
    with picture(path, str(report.more["title"]), len(PANELS) + 1) as panels:
        for mode, join in groups:
            rows = [row for row in report.rows if (row["mode"], row["join"]) == (mode, join)]
            style = {"color": COLOURS[names.index(join) % len(COLOURS)], "linestyle": LINES[mode]}
            style["label"] = f"{join}, {mode}" if several else join
            aside = (names.index(join) - (len(names) - 1) / 2) * ASIDE_MS if len(latencies) == 1 else 0.0
            rows = [{**row, "latency_ms": row["latency_ms"] + aside} for row in rows]
            for axes, (figure, _) in zip(panels, PANELS, strict=False):
                _line(axes, [row for row in rows if row[figure] is not None], figure, style)
            _line(panels[-1], rows, "success", style)
            for row in rows:
                panels[-1].errorbar([row["latency_ms"]], [row["success"]], whiskers(row, "success"), fmt="none",
                                    ecolor=style["color"], elinewidth=0.8, capsize=2)  # fmt: skip
        for axes, label in zip(panels, [*(label for _, label in PANELS), "success, 95 % Wilson"], strict=True):
            axes.set_title(label, fontsize=9)
            axes.set_xlabel("latency of a request, ms", fontsize=8)
            axes.set_ylim(bottom=0)
        panels[-1].set_ylim(-0.02, 1.02)
        for axes in panels:
            axes.margins(x=0.08)
            if len(latencies) == 1:  # matplotlib would choose arbitrary limits for a single value
                axes.set_xlim(latencies[0] - HALF_MS, latencies[0] + HALF_MS)
            axes.set_xticks(latencies)
        handles, labels = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(handles, labels, loc="outside lower center", ncols=8, fontsize=8, frameon=False)


def _line(axes: Any, rows: Sequence[dict[str, Any]], figure: str, style: dict[str, str]) -> None:
    axes.plot([row["latency_ms"] for row in rows], [row[figure] for row in rows], marker="o", markersize=3, **style)
