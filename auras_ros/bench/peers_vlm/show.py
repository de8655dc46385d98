"""The table and the picture of `auras bench peers-vlm`."""

from __future__ import annotations

from pathlib import Path

from auras_ros.bench.peers_vlm.contest import CLOSED, POISSON
from auras_ros.bench.peers_vlm.sides import OURS, TRANSFORMERS, VLLM, library
from auras_ros.measure.cores import words
from auras_ros.report.picture import BLUE, GREEN, GREY, ORANGE, canvas, tidy, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import Column, grouped_by, in_columns

COLOURS_OF = {OURS: BLUE, VLLM: ORANGE, TRANSFORMERS: GREY}
COLUMNS: tuple[Column, ...] = (
    ("requests/s", "{requests_per_s:.3g}"),
    ("tokens/s", "{tokens_per_s:.3g}"),
    ("TTFT p50", "{ttft_p50_ms:.0f}"),
    ("p99", "{ttft_p99_ms:.0f}"),
    ("TBT p50", "{tbt_p50_ms:.1f}"),
    ("p99", "{tbt_p99_ms:.1f}"),
    ("max", "{tbt_max_ms:.0f}"),
    ("E2E p50", "{e2e_p50_ms:.0f}"),
    ("p99", "{e2e_p99_ms:.0f}"),
    ("CPU s/request", "{cpu_s_per_request:.3f}"),
    ("client's", "{client_cpu_s_per_request:.3f}"),
    ("rounds", "{rounds}"),
)


def table(report: Report) -> str:
    """For each model and load a heading and a line for each side, times in ms; then the ratios."""
    lines: list[str] = []
    for (model, load), rows in grouped_by(report.rows, "model", "load").items():
        rate = f" at {rows[0]['rate_hz']:.3g} requests/s" if rows[0]["rate_hz"] else ""
        lines += [f"{model}, {load}{rate}, {words(rows[0]['cores'])}, float32; {rows[0]['requests']}"]
        lines += in_columns(rows, (("ms", "  {side}"), *COLUMNS))
        lines += [f"  {row['side']} was not measured: {row['why']}" for row in rows if "why" in row] + [""]
    lines += [f"{name:44} {value:.3g}" for name, value in report.summary.items()]
    return "\n".join(lines).rstrip()


def draw(report: Report, path: Path) -> None:
    """For each model the throughput of the closed loop, and the times between tokens under Poisson arrivals. Raises
    ValueError if nothing was measured."""
    measured = [row for row in report.rows if row["requests_per_s"] is not None]
    groups = grouped_by(measured, "model", "load")
    if not groups:
        raise ValueError("nothing was measured: no picture")
    models = list(dict.fromkeys(model for model, _ in groups))
    with canvas(path, (5.5 * len(models), 7.0)) as figure:
        figure.suptitle("the same random weights and requests, over HTTP, float32", fontsize=10)
        panels = figure.subplots(2, len(models), squeeze=False)
        for (model, load), rows in groups.items():
            axes = panels[(CLOSED, POISSON).index(load)][models.index(model)]
            names = [row["side"].replace(", ", "\n") for row in rows]
            colours = [COLOURS_OF.get(library(row["side"]), GREEN) for row in rows]
            if load == CLOSED:
                bars = whiskers(rows, "requests_per_s", "requests_per_s_low", "requests_per_s_high")
                axes.barh(names, [row["requests_per_s"] for row in rows], color=colours, xerr=bars)
                axes.set_title(f"{model}\nrequests/s, closed loop of eight")
            else:
                axes.barh(names, [row["tbt_p99_ms"] for row in rows], color=colours)
                axes.plot([row["tbt_p50_ms"] for row in rows], names, "k|", markersize=14)
                axes.set_title(f"{model}\nms between tokens, p99 (line: p50), {rows[0]['rate_hz']:.3g} requests/s")
            axes.invert_yaxis()
            tidy(axes, grid="x")
