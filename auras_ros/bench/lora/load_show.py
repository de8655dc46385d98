"""What `auras bench lora-load`, `lora-skew` and `lora-adapters` show: tables, and the token latency as a picture."""

from __future__ import annotations

from pathlib import Path

from auras_ros.bench.figures.paper import PaperFigure, beside_ours
from auras_ros.measure.cores import words
from auras_ros.report.picture import legend_below, picture, tidy, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import Column, grouped_by, in_columns

PAPER = (
    PaperFigure("average token latency below dLoRA, Punica, S-LoRA (retrieval)", "72, 50, 20", "%", "6.2"),
    PaperFigure("the policy below merge-only, unmerge-only, dLoRA", "33, 59, 21", "%", "6.3.3"),
    PaperFigure("below the best of whole systems", 0.20, "", "6.2", "gain_over_best"),
)
COLUMNS: tuple[Column, ...] = (
    ("side", "{side}"),
    ("ms a token", "{token_ms:.1f}"),
    ("95 %", "{token_ms_low:.1f} to {token_ms_high:.1f}"),
    ("ours over it", "{ratio:.3f}"),
    ("95 %", "{ratio_low:.3f} to {ratio_high:.3f}"),
    ("E2E mean ms", "{e2e_mean_ms:.0f}"),
    ("TTFT mean", "{ttft_mean_ms:.0f}"),
    ("closed loop requests/s", "{closed_hz:.2f}"),
    ("unequal answers", "{unequal}"),
    ("no near tie", "{far}"),
    ("rounds", "{rounds}"),
)
LOAD = ("model", "adapters", "rank", "skew", "share")  # fields of a row that say which load it is of
SPREAD = 0.5  # of a load's sides, of the distance between two loads


def table(report: Report) -> str:
    lines = list[str]()
    for (model, adapters, rank, skew, share), own in grouped_by(report.rows, *LOAD).items():
        rate = f" at {own[0]['rate_hz']:.3g} requests/s ({share:g} of saturation)" if own[0]["rate_hz"] else ""
        lines.append(
            f"{model}{rate}, skew {skew:g}, {adapters} adapters of rank {rank}, {own[0]['slots']} in memory,"
            f" merged weights of {max(row['merged'] for row in own)}, {words(own[0]['cores'])}"
        )
        lines += in_columns([row for row in own if "why" not in row], COLUMNS, left=(0,))
        lines += [f"  {row['side']} was not measured: {row['why']}" for row in own if "why" in row] + [""]
    lines += [*beside_ours([each.row(report.summary) for each in PAPER], "VaLoRA"), ""]
    return "\n".join([*lines, *(f"{name:48} {value:.3f}" for name, value in report.summary.items())])


def draw(report: Report, path: Path) -> None:
    """As figures 22 and 23, by each load: our average token latency over that of each side, within a round. Raises
    ValueError if nothing was measured."""
    rows = [row for row in report.rows if "ratio" in row and row["ratio_low"] < row["ratio_high"]]
    if not rows:
        raise ValueError("no side was measured: there is nothing to draw")
    panels = grouped_by(rows, "model")
    with picture(path, f"many adapters, {words(rows[0]['cores'])}", len(panels)) as all_axes:
        for axes, ((model,), own) in zip(all_axes, panels.items(), strict=True):
            loads = list(grouped_by(own, *LOAD[1:]))
            sides = grouped_by(own, "side").items()
            for number, ((side,), values) in enumerate(sides):
                beside = SPREAD * (number / len(sides) - 0.5)
                places = [loads.index(tuple(row[name] for name in LOAD[1:])) + beside for row in values]
                ends = whiskers(values, "ratio", "ratio_low", "ratio_high")
                axes.errorbar(places, [row["ratio"] for row in values], ends, fmt="o", ms=3, label=side)
            names = [f"{count} of {rank}\nskew {skew:g}\nat {share:g}" for count, rank, skew, share in loads]
            axes.set_xticks(range(len(loads)), names)
            axes.axhline(1.0, color="0.8", zorder=0)
            axes.set_title(f"{model}: our average token latency over a side's", fontsize=9)
            tidy(axes)
            legend_below(axes, columns=3)
