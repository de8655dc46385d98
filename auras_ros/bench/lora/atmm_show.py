"""The results of `lora-atmm` as a table and a picture, and what the paper says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auras_ros.bench.lora.atmm_summary import ATMM, CASE, single
from auras_ros.bench.lora.baselines import BASELINES
from auras_ros.report.picture import BLUE, COLOURS, GREEN, GREY, ORANGE, legend_below, logarithmic, picture
from auras_ros.report.result import Report
from auras_ros.report.table import Column, Row, aligned, grouped_by, in_columns

NOTE = (
    "us of a layer; ranks are mixed (every other adapter has half the rank); the paper's figures are those of an A100"
    " with a width of 4096"
)
PAPER = {  # VaLoRA 6.3.2, figures 17 and 18; comparable: "comparable latency to S-LoRA" in decodes
    "over_einsum": 3.4, "over_punica": 2.3, "over_slora": 2.7, "over_einsum_decode": 4.5, "over_punica_decode": 2.6,
    "over_slora_decode": 1.0, "fluctuation_over_slora": 3.0, "fluctuation_over_punica": 2.0,
    "fluctuation_over_einsum": 2.0,
}  # fmt: skip
TABLE_1 = [  # ms on an A100, for (256x4096, 4096x32) and (8192x4096, 4096x128); ours: measured on a GPU alone
    {"tiling": "Punica (16, 64, 64, 16, 16, 64)", "input_1_ms": 0.087, "input_2_ms": 0.19, "ours": "not measured"},
    {"tiling": "config 1 (64, 32, 32, 32, 32, 32)", "input_1_ms": 0.07, "input_2_ms": 0.12, "ours": "not measured"},
    {"tiling": "config 2 (64, 64, 64, 32, 64, 64)", "input_1_ms": 0.13, "input_2_ms": 0.10, "ours": "not measured"},
]
SHOWN = (ATMM, *BASELINES)
COLOUR = {ATMM: BLUE, "einsum": ORANGE, "punica": GREEN, "slora": COLOURS["dec"], "single": GREY}


def paper_figures(summary: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"figure": name, "here": summary.get(name), "paper": value} for name, value in PAPER.items()]


def table(report: Report) -> str:
    if report.rows and "operator" not in report.rows[0]:
        return _searched(report)
    columns: list[Column] = [(name, f"{{{name}}}") for name in (*CASE, "cores", "way")]
    columns += [(f"{name} us", f"{{{name}_us:.1f}}") for name in SHOWN]
    columns.append(("of best", "{best_ratio:.3f}"))
    lines = in_columns(_flat(report.rows), columns, left=(0, 1, 6))
    figures = [[name, f"{value:.4g}"] for name, value in report.summary.items()]
    lines += ["", *aligned([["summary", ""], *figures]), "", *_paper(report)]
    if report.rows:
        lines += ["", f"the best single way: {single(report.rows)}"]
    ours: list[Column] = [(name, f"{{{name}}}") for name in TABLE_1[0]]
    return "\n".join([*lines, "", "table 1", *in_columns(TABLE_1, ours), "", str(report.more["note"])])


def _searched(report: Report) -> str:
    """A search, or what a GPU measured: a row has all times of its shape."""
    first = report.rows[0]
    names = [name for name in first if not isinstance(first[name], float)]
    columns: list[Column] = [(name, f"{{{name}}}") for name in names]
    times = dict.fromkeys(name for row in report.rows for name in row if name.endswith("us"))
    columns += [(name.replace("_us", " us"), f"{{{name}:.1f}}") for name in times]
    figures = [[name, f"{value:.4g}"] for name, value in report.summary.items()]
    left = [number for number, name in enumerate(names) if isinstance(first[name], str)]
    lines = [*in_columns(report.rows, columns, left), "", *aligned([["summary", ""], *figures])]
    return "\n".join([*lines, "", *_paper(report)] if "paper" in report.more else lines)


def _paper(report: Report) -> list[str]:
    columns: list[Column] = [("figure", "{figure}"), ("here", "{here:.2f}"), ("paper", "{paper:g}")]
    return in_columns(report.more.get("paper", ()), columns)


def _flat(rows: list[dict[str, Any]]) -> list[Row]:
    """A row for each shape, with the times of those that are shown."""
    found = list[Row]()
    for _, own in grouped_by(rows, *CASE).items():
        atmm = next(row for row in own if row["operator"] == ATMM)
        found.append({**atmm, **{f"{row['operator']}_us": row["us"] for row in own}})
    return found


def draw(report: Report, path: Path) -> None:
    """As figure 17: the time of a layer over the tokens of the batch, for each layer with its most adapters and the
    largest rank. Raises ValueError if nothing was measured."""
    rows = [row for row in report.rows if "operator" in row]
    if not rows:
        raise ValueError("nothing was measured that can be drawn")
    best, rank = single(rows), max(row["rank"] for row in rows)
    panels = grouped_by([row for row in rows if row["rank"] == rank], "layer")
    with picture(path, f"low-rank products of a layer, rank {rank}, {rows[0]['cores']} core(s)", len(panels)) as axes:
        for each, ((layer,), own) in zip(axes, panels.items(), strict=True):
            for name, label in [(best, f"{best} for all"), *((name, name) for name in SHOWN)]:
                points = _most_adapters([row for row in own if row["operator"] == name])
                colour = COLOUR["single" if label not in SHOWN else name]
                each.plot(
                    [row["tokens"] for row in points], [row["us"] for row in points], "o-", color=colour, label=label
                )
            each.set_title(layer)
            each.set_xscale("log", base=2)
            logarithmic(each)
            each.set_xlabel("tokens", fontsize=8)
            each.set_ylabel("us", fontsize=8)
            legend_below(each, 3)


def _most_adapters(rows: list[dict[str, Any]]) -> list[Row]:
    groups = grouped_by(rows, "tokens").values()
    return sorted((max(own, key=lambda row: row["adapters"]) for own in groups), key=lambda row: row["tokens"])
