"""The picture of `auras bench fig16`: a grid of stages for each model and offset, coloured by the speedup over seq.

As in the paper, plans of fetch_offset -1 with at least twice seq's rate are framed. matplotlib is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from auras_ros.measure.cores import words
from auras_ros.report.result import Report

OFFSETS = (0, -1)
PANEL_INCHES, DPI = (4.6, 2.7), 110
DARK = 0.6  # share of the colour range from which text is white


def draw_grids(report: Report, path: Path, wanted: float) -> None:
    """Write the PNG. wanted: speedup from which a plan is framed. Raises ValueError if nothing was measured."""
    rows = [row for row in report.rows if row["measure"] == "rounds" and row["mode"] == "auras"]
    models = list(dict.fromkeys((row["model"], row["cores"]) for row in rows))
    if not rows:
        raise ValueError("no plan was measured: there is nothing to draw")
    offsets = [offset for offset in OFFSETS if any(row["fetch_offset"] == offset for row in rows)]
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(offsets), height * len(models)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(models), len(offsets), squeeze=False)
    most = max(row["over_seq"] for row in rows)
    for line, model in zip(panels, models, strict=True):
        for axes, offset in zip(line, offsets, strict=True):
            chosen = [row for row in rows if (row["model"], row["cores"], row["fetch_offset"]) == (*model, offset)]
            if not chosen:
                axes.set_axis_off()
                continue
            _panel(axes, chosen, max(most, wanted), wanted)
            where = f"{chosen[0]['device']}, {words(model[1])} for each"
            axes.set_title(f"{chosen[0]['sizes']}, fetch_offset {offset} ({where})", fontsize=9)
    figure.suptitle("TinyVLA: chunks per second, and times seq's in the same round", fontsize=10)
    figure.savefig(path, dpi=DPI)


def _panel(axes: Axes, rows: Sequence[Mapping[str, Any]], most: float, wanted: float) -> None:
    across = sorted({row["pp_generation"] for row in rows})
    down = sorted({row["pp_perception"] for row in rows})
    values = np.full((len(down), len(across)), np.nan)
    for row in rows:
        y, x = down.index(row["pp_perception"]), across.index(row["pp_generation"])
        values[y, x] = row["over_seq"]
        colour = "white" if row["over_seq"] > DARK * most else "#222222"
        text = f"{row['chunks_per_s']:.2f}\n{row['over_seq']:.2f}×"
        axes.text(x, y, text, ha="center", va="center", fontsize=8, color=colour)
        if row["fetch_offset"] == -1 and row["over_seq"] >= wanted:
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="#d9822b", lw=2.0))
    axes.imshow(values, cmap="Blues", vmin=0.0, vmax=most, aspect="auto")
    axes.set_xticks(range(len(across)), [str(count) for count in across], fontsize=8)
    axes.set_yticks(range(len(down)), [str(count) for count in down], fontsize=8)
    axes.set_xlabel("pp_generation", fontsize=8)
    axes.set_ylabel("pp_perception", fontsize=8)
