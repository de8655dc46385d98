"""The results of `auras bench seams` as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.evaluate.show import REFUSED, success_columns
from auras_ros.report.picture import picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import Column, Row, grouped_by, in_columns

COLUMNS: tuple[Column, ...] = (
    ("join", "{join}"),
    ("mode", "{mode}"),
    ("latency ms", "{latency_ms:g}"),
    ("episodes", "{episodes}"),
    *success_columns("switch", "above_switch", "above_low", "above_high"),
    ("seams", "{seams}"),
    ("jump px: max", "{jump_max_px:.1f}"),
    ("p99", "{jump_p99_px:.1f}"),
    ("median", "{jump_median_px:.1f}"),
    ("limited", "{limited_share:.0%}"),
    ("disagree px: max", "{disagreement_max_px:.1f}"),
    ("p99", "{disagreement_p99_px:.1f}"),
    ("median", "{disagreement_median_px:.1f}"),
    ("within px: max", "{within_max_px:.1f}"),
    ("any step px: max", "{step_max_px:.1f}"),
    ("holds", "{hold_share:.1%}"),
    ("stale ms", "{staleness_ms:.0f}"),
    REFUSED,
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
    alone = {"above_switch": None, "above_low": None}  # switch compared with itself
    rows = [{**row, **alone} if row["join"] == "switch" else row for row in report.rows]
    return "\n".join([str(report.more["title"]), *in_columns(rows, COLUMNS), NOTE])


def draw(report: Report, path: Path) -> None:
    """Jumps, disagreements and success over the latency, a line for each way of joining. Raises ValueError if nothing
    was played."""
    if not report.rows:
        raise ValueError("nothing was played: there is nothing to draw")
    names = list(dict.fromkeys(row["join"] for row in report.rows))
    groups = grouped_by(report.rows, "mode", "join")
    latencies = sorted({row["latency_ms"] for row in report.rows})
    several = len({mode for mode, _ in groups}) > 1
    with picture(path, str(report.more["title"]), len(PANELS) + 1) as panels:
        for (mode, join), played in groups.items():
            style: dict[str, Any] = {"color": COLOURS[names.index(join) % len(COLOURS)], "linestyle": LINES[mode]}
            style["label"] = f"{join}, {mode}" if several else join
            aside = (names.index(join) - (len(names) - 1) / 2) * ASIDE_MS if len(latencies) == 1 else 0.0
            rows = [{**row, "latency_ms": row["latency_ms"] + aside} for row in played]
            for axes, (figure, _) in zip(panels, PANELS, strict=False):
                _line(axes, [row for row in rows if row[figure] is not None], figure, style)
            _line(panels[-1], rows, "success", {**style, "elinewidth": 0.8, "capsize": 2}, whiskers(rows, "success"))
        for axes, label in zip(panels, [*(label for _, label in PANELS), "success, 95 % Wilson"], strict=True):
            axes.set(title=label, ylim=(0, None))
            axes.set_xlabel("latency of a request, ms", fontsize=8)
        panels[-1].set_ylim(-0.02, 1.02)
        for axes in panels:
            axes.margins(x=0.08)
            if len(latencies) == 1:  # matplotlib would choose arbitrary limits for a single value
                axes.set_xlim(latencies[0] - HALF_MS, latencies[0] + HALF_MS)
            axes.set_xticks(latencies)
        handles, labels = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(handles, labels, loc="outside lower center", ncols=8, fontsize=8, frameon=False)


def _line(axes: Any, rows: Sequence[Row], figure: str, style: dict[str, Any], spans: Any = None) -> None:
    at, values = [row["latency_ms"] for row in rows], [row[figure] for row in rows]
    axes.errorbar(at, values, spans, marker="o", markersize=3, **style)
