"""What all pictures have in common. matplotlib is imported where a picture is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLUE, ORANGE, GREY, GREEN = "#1f77b4", "#d9822b", "#4c4f56", "#3d8f5f"
COLOURS = {"seq": GREY, "dec": "#8c6bb1", "par": ORANGE, "par-aligned": "#e8b04a", "auras": BLUE}
DPI = 110
TITLE_AT, NOTE_AT = 9, 8  # points


@contextmanager
def canvas(path: Path, size: tuple[float, float], dpi: int = DPI, layout: Any = "constrained") -> Iterator[Any]:
    """A matplotlib figure; the PNG is written at the end of the block. size: width and height, inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    yield figure
    figure.savefig(path, dpi=dpi)


@contextmanager
def picture(path: Path, title: str, panels: int, height: float = 4.0) -> Iterator[Sequence[Any]]:
    """`panels` axes side by side; the PNG is written at the end of the block."""
    with canvas(path, (max(6.0, 5.0 * panels), height)) as figure:
        figure.suptitle(title, fontsize=10)
        axes = figure.subplots(1, panels, squeeze=False)[0]
        yield axes
        for each in axes:
            tidy(each)


def tidy(axes: Any, grid: str = "y") -> None:
    """A small title and labels, no frame on the upper and right side, and a grid behind the data."""
    axes.title.set_fontsize(TITLE_AT)
    axes.tick_params(labelsize=NOTE_AT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.3)
    axes.set_axisbelow(True)


def logarithmic(axes: Any) -> None:
    """A logarithmic scale upwards, with its numbers written out."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter("")


def legend_below(axes: Any, columns: int = 2, under: float = -0.16) -> None:
    """A legend below the axes and their label, so that it covers no data. None if nothing is labelled."""
    if axes.get_legend_handles_labels()[0]:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, under)}
        axes.legend(fontsize=NOTE_AT, ncols=columns, frameon=False, **place)


def whiskers(
    rows: Sequence[Mapping[str, Any]], value: str, low: str = "low", high: str = "high"
) -> tuple[list[float], list[float]]:
    """The rows' intervals as matplotlib's error bars take them; never negative."""
    below = [max(0.0, row[value] - row[low]) for row in rows]
    return below, [max(0.0, row[high] - row[value]) for row in rows]
