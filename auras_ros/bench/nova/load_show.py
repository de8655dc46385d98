"""`nova-load` on a virtual clock as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.bench.figures.paper import FIGURE_ONLY, PaperFigure, beside_ours
from auras_ros.bench.nova import sensitivity, table5
from auras_ros.report.picture import BLUE, GREEN, GREY, ORANGE, legend_below, logarithmic, picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import Column, Row, grouped_by, in_columns

PAPER = (
    PaperFigure("mean E2E, gain on the best baseline, at most", 0.146, "", "I", "mean_e2e_gain"),
    PaperFigure("maximum E2E, gain on the best baseline, at most", 0.233, "", "I", "max_e2e_gain"),
    PaperFigure("throughput over the best baseline's", "no smaller", "", "I", "throughput_ratio"),
    PaperFigure("requests that decode together, typically below", 5.0, "", "III-C2", "nova_decode_batch_most"),
    PaperFigure("time between tokens, in theory below", 80.0, "ms", "V-A5", "nova_tbt_ms_max"),
    PaperFigure("each point", FIGURE_ONLY, "", "figures 10 to 12"),
)
COLOURS = {
    "nova": BLUE, "marginal": "#8c6bb1", "pf-limit": ORANGE, "chunk": GREEN, "multi-stream": "#c44e52",
    "interleaved": GREY, "static": "#937860",
}  # fmt: skip
PANELS = {
    "mean_e2e_s": "mean E2E, s",
    "max_e2e_s": "longest E2E of a trace, s",
    "tbt_ms": "mean time between tokens, ms",
}
ENDS = {"low": min, "high": max}
TITLES = {
    "best": "over the best baseline, tuned",
    "paper": "over the best with the paper's settings",
    "static": "over the best static split",
}
COLUMNS: tuple[Column, ...] = (
    ("rate", "{rate:g}"),
    ("scheduler", "{setting}"),
    ("E2E s", "{mean_e2e_s:.2f}"),
    ("95 %", "{mean_e2e_s_low:.2f} to {mean_e2e_s_high:.2f}"),
    ("longest", "{max_e2e_s:.1f}"),
    ("TTFT s", "{ttft_s:.2f}"),
    ("TBT ms", "{tbt_ms:.0f}"),
    ("p99", "{tbt_ms_p99:.0f}"),
    ("longest", "{tbt_ms_max:.0f}"),
    ("requests/s", "{throughput_hz:.4f}"),
    ("batch", "{decode_batch:.2f}"),
    ("vision + prefill s", "{processing_s:.2f}"),
    ("delay s", "{delay_s:.2f}"),
    ("n", "{n}"),
)


def table(report: Report) -> str:
    """Of each scheduler the setting with the best mean E2E at each rate; Nova over the best baseline; table V."""
    rows = report.rows
    ours = [each.row(report.summary) for each in PAPER]
    numbers = [f"{name:36} {value:8.4f}" for name, value in report.summary.items()]
    shown = [*parts(rows), table5.lines(rows), sensitivity.lines(rows), beside_ours(ours, "Nova"), numbers]
    return "\n\n".join("\n".join(part) for part in shown if part)


def parts(rows: Sequence[Row]) -> list[list[str]]:
    """Tables of the schedulers' figures, and of the gains on the baselines."""
    shown = in_columns(tuned(rows, "mean_e2e_s"), COLUMNS, left=(0, 1)) if load_rows(rows) else []
    return [shown, _multi_stream(rows), *(_gains(rows, settings) for settings in TITLES)]


def load_rows(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["measure"] == "load"]


def tuned(rows: Sequence[Row], metric: str) -> list[Row]:
    """For each rate and scheduler the row of its best setting."""
    groups = grouped_by(load_rows(rows), "rate", "scheduler").values()
    return [min(group, key=lambda row: float(row[metric])) for group in groups]


def _multi_stream(rows: Sequence[Row]) -> list[str]:
    """The range over its slowdowns, at each rate; nothing if there is one alone."""
    own = [row for row in load_rows(rows) if row["scheduler"] == "multi-stream"]
    ranges = []
    for (rate,), group in grouped_by(own, "rate").items():
        of = {name: [row[name] for row in group] for name in ("mean_e2e_s", "max_e2e_s", "tbt_ms")}
        ends = {f"{name}_{word}": end(values) for name, values in of.items() for word, end in ENDS.items()}
        ranges.append({"rate": rate, "n": len(group)} | ends)
    columns: tuple[Column, ...] = (
        ("multi-stream over its slowdowns: rate", "{rate:g}"),
        ("E2E s", "{mean_e2e_s_low:.2f} to {mean_e2e_s_high:.2f}"),
        ("longest", "{max_e2e_s_low:.1f} to {max_e2e_s_high:.1f}"),
        ("TBT ms", "{tbt_ms_low:.0f} to {tbt_ms_high:.0f}"),
    )
    return in_columns(ranges, columns) if any(each["n"] > 1 for each in ranges) else []


def _gains(rows: Sequence[Row], settings: str) -> list[str]:
    """A line for each rate and scheduler: its gain on the best baseline, and which that is."""
    chosen = [row for row in rows if row["measure"] == "gain" and row["settings"] == settings]
    lines = []
    for own in grouped_by(chosen, "rate", "scheduler").values():
        of = {row["metric"]: row for row in own}
        cells = {"rate": own[0]["rate"], "scheduler": own[0]["scheduler"]}
        for metric, row in of.items():
            cells |= {f"{metric}_{name}": row[name] for name in ("ratio_of_means", "baseline")}
            cells |= {f"{metric}_low": 1 - row["ratio_high"], f"{metric}_high": 1 - row["ratio_low"]}
            cells[f"{metric}_gain"] = 1 - row["ratio_of_means"]
        lines.append(cells)
    columns: tuple[Column, ...] = (
        ("rate", "{rate:g}"),
        (TITLES[settings], "{scheduler}"),
        ("mean E2E", "{mean_e2e_s_gain:+.1%}"),
        ("95 %", "{mean_e2e_s_low:+.1%} to {mean_e2e_s_high:+.1%}"),
        ("on", "{mean_e2e_s_baseline}"),
        ("longest E2E", "{max_e2e_s_gain:+.1%}"),
        ("95 %", "{max_e2e_s_low:+.1%} to {max_e2e_s_high:+.1%}"),
        ("on", "{max_e2e_s_baseline}"),
        ("throughput", "{throughput_hz_ratio_of_means:.4f}"),
        ("of", "{throughput_hz_baseline}"),
    )
    return in_columns(lines, columns, left=(0, 1, 4, 7, 9)) if lines else []


def draw(report: Report, path: Path) -> None:
    """Mean and longest E2E and the time between tokens over the rate, each scheduler with its best setting. Raises
    ValueError if nothing was measured."""
    if not load_rows(report.rows):
        raise ValueError("no scheduler was run: there is nothing to draw")
    with picture(path, f"Poisson arrivals on a virtual {load_rows(report.rows)[0]['profile']}", len(PANELS)) as panels:
        for axes, (metric, label) in zip(panels, PANELS.items(), strict=True):
            _shade(axes, report.rows, metric)
            draw_metric(axes, tuned(report.rows, metric), metric, label)
        legend_below(panels[1], columns=len(COLOURS))


def _shade(axes: Any, rows: Sequence[Row], metric: str) -> None:
    """Multi-Stream's range over its slowdowns."""
    own = [row for row in load_rows(rows) if row["scheduler"] == "multi-stream"]
    of = {rate: [row[metric] for row in group] for (rate,), group in grouped_by(own, "rate").items()}
    axes.fill_between(
        [*of], [*map(min, of.values())], [*map(max, of.values())], color=COLOURS["multi-stream"], alpha=0.2
    )


def draw_metric(axes: Any, rows: Sequence[Row], metric: str, label: str) -> None:
    """A line for each scheduler, over the rate."""
    for (family,), own in grouped_by(rows, "scheduler").items():
        ends = whiskers(own, metric, f"{metric}_low", f"{metric}_high")
        values, colour = [row[metric] for row in own], COLOURS.get(family)
        axes.errorbar([row["rate"] for row in own], values, ends, color=colour, label=family, marker="o", ms=3)
    logarithmic(axes)
    axes.set_xlabel("requests a second", fontsize=8)
    axes.set_title(label)
