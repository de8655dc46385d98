"""The pictures of the kept reports: a legend covers no data, and figure 10 says whose accuracy it shows."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from auras_ros.evaluate.report import Report

KEPT = Path(__file__).parents[3] / "docs" / "benchmarks"
OLDER = {"cores": 1, "together": False, "disturbed": False}  # what rows of before lack


def drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> Figure:
    raw = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    report = Report(name, [OLDER | row for row in raw.pop("rows")], raw.pop("summary"), more=raw)
    kept: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *given, **rest: kept.append(figure))
    module: Any = importlib.import_module(f"auras_ros.bench.figures.{name}")
    module.draw(report, Path("it.png"))
    kept[0].draw_without_rendering()
    return kept[0]


@pytest.mark.parametrize("name", ["fig3", "fig5", "fig10", "fig11", "fig12", "fig13", "fig14", "startup"])
def test_a_legend_covers_no_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lay inside the axes, over bars and curves."""
    axes = drawn(name, monkeypatch).axes
    legends = [each.get_legend() for each in axes if each.get_legend() is not None]
    assert legends
    for legend in legends:
        assert not any(legend.get_window_extent().overlaps(each.get_window_extent()) for each in axes)


def test_figure_10_says_whose_accuracy_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "success on Push-T alone" in drawn("fig10", monkeypatch).get_suptitle()
