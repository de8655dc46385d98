"""The pictures: of the kept reports, and of rows that are written down. A legend covers nothing, and what was measured
is there."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from auras_ros.bench.figures import fig15
from auras_ros.bench.figures.fig15 import REUSE_ROW, STEPS_ROW, TOKENS_ROW
from auras_ros.bench.pipeline import show as pipeline_show
from auras_ros.bench.seams import show as seams_show
from auras_ros.clock import VirtualClock
from auras_ros.device import Span
from auras_ros.evaluate.tuner import show as tuner_show
from auras_ros.evaluate.tuner.candidate import Candidate
from auras_ros.evaluate.tuner.search import SearchResult
from auras_ros.measure import trace_picture
from auras_ros.measure.recording import Recording
from auras_ros.pipeline.live import Frame
from auras_ros.pipeline.plan import Plan
from auras_ros.report.result import Report

KEPT = Path(__file__).parents[3] / "docs" / "benchmarks"
OLDER = {"cores": 1, "together": False, "disturbed": False}  # what rows of before lack


MS = 1_000_000


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been written."""
    kept: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *given, **rest: kept.append(figure))
    return kept


def kept_report(name: str) -> Report:
    raw = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    return Report(name, [OLDER | row for row in raw.pop("rows")], raw.pop("summary"), more=raw)


def drawn(name: str, figures: list[Any]) -> Any:
    module: Any = importlib.import_module(f"auras_ros.bench.figures.{name}")
    module.draw(kept_report(name), Path("it.png"))
    figures[0].draw_without_rendering()
    return figures[0]


def legend_apart(figure: Any) -> list[str]:
    """The entries of a legend of the whole picture; it lies on no axes, and on no title and label of theirs."""
    figure.draw_without_rendering()
    (legend,) = figure.legends
    taken = legend.get_window_extent()
    assert not any(taken.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    return [text.get_text() for text in legend.get_texts()]


def points(axes: Any) -> set[tuple[float, float]]:
    """Of all lines and markers."""
    return {tuple(point) for line in axes.lines for point in np.array(line.get_data(), float).T.tolist()}


@pytest.mark.parametrize("name", ["fig3", "fig5", "fig10", "fig11", "fig12", "fig13", "fig14", "startup"])
def test_a_legend_covers_no_data(name: str, figures: list[Any]) -> None:
    """They lay inside the axes, over bars and curves."""
    axes = drawn(name, figures).axes
    legends = [each.get_legend() for each in axes if each.get_legend() is not None]
    assert legends
    for legend in legends:
        assert not any(legend.get_window_extent().overlaps(each.get_window_extent()) for each in axes)


def test_figure_10_says_whose_accuracy_it_shows(figures: list[Any]) -> None:
    assert "success on Push-T, and" in drawn("fig10", figures).get_suptitle()


def test_figure_15_has_a_panel_for_each_half_and_number_of_cores(figures: list[Any]) -> None:
    half = {"device": "cpu", "model": "m", "low": 1.0, "high": 3.0}
    rows = [
        {**half, "compared": compared, "prefix": prefix, "cores": cores, "iterations": count, "ratio": 1.0 + count / 10}
        for compared, prefixes in ((TOKENS_ROW, (64, 256)), (STEPS_ROW, (None,)), (REUSE_ROW, (64,)))
        for prefix in prefixes
        for cores in (1, 2)
        for count in (2, 8)
    ]
    fig15.draw(Report("fig15", rows), Path("it.png"))
    figures[0].draw_without_rendering()
    axes = figures[0].axes
    assert [each.get_title().split(" on ")[0] for each in axes] == [TOKENS_ROW] * 2 + [STEPS_ROW] * 2
    assert [len(each.get_legend().get_texts()) for each in axes] == [2, 2, 1, 1]
    for each in axes:
        assert {(2.0, 1.2), (8.0, 1.8)} <= points(each)
        assert not any(each.get_legend().get_window_extent().overlaps(one.get_window_extent()) for one in axes)


def test_the_pipelines_picture_has_a_bar_for_each_variant_and_marks_the_disturbed(figures: list[Any]) -> None:
    measured = {"measure": "rounds", "policy": "p", "cores": 1, "device": "cpu", "low": 1.0, "high": 9.0}
    rows: list[dict[str, Any]] = [
        {
            **measured,
            "mode": mode,
            "variant": mode,
            "chunks_per_s": rate,
            "staleness_ms": age,
            "disturbed": mode == "par",
        }
        for mode, rate, age in (("seq", 2.0, 500.0), ("par", 3.0, None), ("auras", 8.0, 600.0))
    ]
    pipeline_show.draw(Report("pipeline", [{"measure": "check"}, *rows]), Path("it.png"))
    rates, ages = figures[0].axes
    assert [bar.get_width() for bar in rates.patches] == [2.0, 3.0, 8.0]
    assert [bar.get_width() for bar in ages.patches] == [500.0, 600.0]
    assert [text.get_text() for text in rates.get_yticklabels()] == ["seq", "par (disturbed)", "auras"]
    with pytest.raises(ValueError, match="no complete round"):
        pipeline_show.draw(Report("pipeline", [{"measure": "check"}]), Path("it.png"))


def test_under_a_lone_latency_each_way_of_joining_stands_beside_the_others(figures: list[Any]) -> None:
    """All points lay on one vertical line, over each other."""
    report = kept_report("seams")
    lone = [row | {"step_max_px": row["jump_max_px"]} for row in report.rows if row["latency_ms"] == 100.0]
    joins = list(dict.fromkeys(row["join"] for row in lone))
    report.rows[:] = lone
    seams_show.draw(report, Path("it.png"))
    assert len(legend_apart(figures[0])) == len({(row["join"], row["mode"]) for row in lone})
    for axes in figures[0].axes:
        low, high = axes.get_xlim()
        at = {x for x, _ in points(axes)}
        assert len(at) == len(joins)
        assert low < min(at) < 100.0 < max(at) < high


def test_the_tuners_picture_has_seq_and_a_ring_round_the_chosen_plan(figures: list[Any]) -> None:
    def one(rate_hz: float, success: float, plan: str, refused: str = "") -> Candidate:
        return Candidate(
            Plan.parse(plan), rate_hz, rate_hz / 2, 0.0, refused, 48, success, success - 0.1, success + 0.1
        )

    seq, chosen = one(2.0, 0.5, "ddpm100"), one(6.0, 0.75, "ddpm100,mode=auras,pp_generation=4,alpha=0.5")
    left = one(9.0, 0.25, "ddpm100,mode=auras,pp_generation=8", "too bad")
    tuner_show.draw(SearchResult([chosen, seq, left], chosen, None, False, seq=seq), "a search", Path("it.png"))
    entries = legend_apart(figures[0])
    assert {"seq ddpm100", "dropped", "ddpm100", f"chosen: {chosen.plan}"} <= set(entries)
    (axes,) = figures[0].axes
    assert {(2.0, 0.5), (6.0, 0.75), (9.0, 0.25)} <= points(axes)
    (ring,) = [line for line in axes.lines if line.get_label() == f"chosen: {chosen.plan}"]
    assert np.ravel(ring.get_data()).tolist() == [6.0, 0.75]
    assert {"seq", "1/4, 0.5"} == {text.get_text() for text in axes.texts}


def test_the_traces_legend_explains_every_colour_and_lies_on_nothing(figures: list[Any]) -> None:
    """It lay on the numbers of the frames, and grey was not explained."""
    recording = Recording(VirtualClock())
    for number in range(12):
        ended_ns = number * 10 * MS + 9 * MS
        recording.ended(Frame("frame", number, number * 10 * MS, ended_ns, ended_ns, None))
    spans = [
        Span(lane, stage, number * 10 * MS, number * 10 * MS + 5 * MS)
        for number in range(12)
        for stage, lane in (("perception", "perception"), ("generation 0", "generation"), ("copy out", "copies"))
    ]
    trace_picture.draw(spans, recording, "a trace", Path("it.png"))
    entries = legend_apart(figures[0])
    assert any("without a chunk" in entry for entry in entries)
    colours = {patch.get_facecolor() for axes in figures[0].axes for patch in axes.patches}
    explained = {patch.get_facecolor() for patch in figures[0].legends[0].get_patches()}
    assert colours
    assert colours <= explained
