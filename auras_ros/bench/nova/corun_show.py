"""`nova-corun` as text, beside the paper's numbers, and as a picture."""

from __future__ import annotations

from pathlib import Path

from auras_ros.bench.figures.paper import FIGURE_ONLY, PaperFigure, beside_ours
from auras_ros.report.picture import BLUE, ORANGE, legend_below, picture
from auras_ros.report.result import Report
from auras_ros.report.table import Column, grouped_by, in_columns

PAPER = (
    PaperFigure("vision of one image (CogAgent)", 806.8, "ms", "table I", "vision_ms"),
    PaperFigure("prefill of one prompt (CogAgent)", 324.1, "ms", "table I", "prefill_ms"),
    PaperFigure("decode of one request (CogAgent)", 28.9, "ms", "table I", "decode_ms"),
    PaperFigure("vision's kernels, compute / memory used", "73.7-89.9 / 36.3-59.2", "%", "table III"),
    PaperFigure("prefill's kernels, compute / memory used", "73.8-92.3 / 34.9-73.9", "%", "table III"),
    PaperFigure("decode's kernels, compute / memory used", "17.0-27.8 / 53.1-92.3", "%", "table III"),
    PaperFigure("gain beside vision over that beside prefill", "higher", "", "V-B", "vision_gain_over_prefill_gain"),
    PaperFigure("gains and latencies by split", FIGURE_ONLY, "", "figures 8 and 9"),
    PaperFigure("decode's linear, 2000 times, alone", 699.8, "ms", "table IV", "linear_decode_ms"),
    PaperFigure("the same beside vision's, no partition", 1241.8, "ms", "table IV", "linear_shared_decode_ms"),
    PaperFigure("vision's linear, 200 times, alone", 588.3, "ms", "table IV", "linear_vision_ms"),
    PaperFigure("the same beside decode's, no partition", 680.6, "ms", "table IV", "linear_shared_vision_ms"),
    PaperFigure("both, one after the other", 1288.1, "ms", "III-B1", "linear_sequential_ms"),
    PaperFigure("decode's linear, once", 0.35, "ms", "table IV", "linear_decode_each_ms"),
    PaperFigure("vision's linear, once", 2.97, "ms", "table IV", "linear_vision_each_ms"),
    PaperFigure("fewest units of decode's with a gain, of 84", 18.0, "SMs", "III-B2", "linear_gain_units_least"),
    PaperFigure("most units of decode's with a gain, of 84", 36.0, "SMs", "III-B2", "linear_gain_units_most"),
    PaperFigure("memory throughput of decode's linear", 639.78, "GB/s", "table IV"),
    PaperFigure("memory throughput of vision's linear", 273.14, "GB/s", "table IV"),
    PaperFigure("SM throughput of decode's linear", 33.58, "%", "table IV"),
    PaperFigure("SM throughput of vision's linear", 87.63, "%", "table IV"),
    PaperFigure("thread blocks of decode's linear", 448.0, "", "table IV"),
    PaperFigure("thread blocks of vision's linear", 3000.0, "", "table IV"),
)
NOTE = "a dash: not measured; throughputs and blocks of a kernel need a profiler, the linears a GPU"


def table(report: Report) -> str:
    columns: tuple[Column, ...] = (
        ("decode beside", "{pair}"),
        ("units", lambda row: "all" if row["units"] is None else f"{row['units']} of {row['of']}"),
        ("gain", "{gain:.2f}"),
        ("quartiles", "{gain_low:.2f} to {gain_high:.2f}"),
        ("alone ms", "{alone_ms:.2f}"),
        ("beside ms", "{beside_ms:.2f}"),
        ("%", "{latency_percent:+.0f}"),
        ("decode alone ms", "{decode_alone_ms:.2f}"),
        ("beside ms", "{decode_beside_ms:.2f}"),
        ("%", "{decode_latency_percent:+.0f}"),
        ("n", "{n}"),
    )
    two: tuple[Column, ...] = (
        *columns[:4],
        ("decode's alone ms", "{decode_alone_ms:.1f}"),
        ("together ms", "{decode_ms:.1f}"),
        ("vision's alone ms", "{vision_alone_ms:.1f}"),
        ("together ms", "{vision_ms:.1f}"),
        ("n", "{n}"),
    )
    stages = [row for row in report.rows if row["pair"] != "linears"]
    products = [row for row in report.rows if row["pair"] == "linears"]
    parts = [
        in_columns(stages, columns),
        in_columns(products, two) if products else [],
        [*beside_ours([each.row(report.summary) for each in PAPER], "Nova"), NOTE],
        [f"{name:36} {value:8.4g}" for name, value in report.summary.items()],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def draw(report: Report, path: Path) -> None:
    """Figures 8 and 9. Raises ValueError if nothing was measured."""
    rows = [row for row in report.rows if row["pair"] != "linears"]
    if not rows:
        raise ValueError("nothing was measured: there is nothing to draw")
    with picture(path, f"decode beside another stage, {rows[0]['model']}", 3) as (gains, stage, decodes):
        for at, ((pair,), own) in enumerate(grouped_by(rows, "pair").items()):
            places = [place + 0.4 * at for place in range(len(own))]
            style = {"width": 0.4, "color": (BLUE, ORANGE)[at], "label": pair}
            gains.bar(places, [100 * (row["gain"] - 1) for row in own], **style)
            stage.bar(places, [row["latency_percent"] for row in own], **style)
            decodes.bar(places, [row["decode_latency_percent"] for row in own], **style)
        for axes, title in (
            (gains, "throughput gained, % (8)"),
            (stage, "stage slower by, % (9)"),
            (decodes, "decode slower by, % (9)"),
        ):
            axes.set_title(title)
            axes.set_xticks([place + 0.2 for place in range(len(own))], [row["units"] or "all" for row in own])
            axes.set_xlabel("decode's units", fontsize=8)
            legend_below(axes)
