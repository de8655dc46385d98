"""`auras bench fig16` on tiny networks: what it compares, reports and draws. The figures themselves are a bench's.

Guards: a plan of the figure left out; rates divided by another model's seq; a schedule timed that computes another
thing.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.bench.figures import fig16
from auras_ros.cli import bench as command
from auras_ros.measure import same
from auras_ros.models.presets import QUARTER, TINYVLAS
from auras_ros.models.tinyvla import build_head, build_llava_pythia
from auras_ros.report.result import Report

SHORT = ["--rounds", "1", "--cores", "1", "--chunks", "1", "--seconds", "0", "--steps", "3", "--device", "cpu"]
STAGES = ["--pp-perception", "3", "--pp-generation", "1,2"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model instead of each quarter."""
    for model in fig16.MODELS:
        monkeypatch.setitem(TINYVLAS, model + QUARTER, TINYVLAS["tinyvla-tiny"])  # type: ignore[arg-type]


@pytest.mark.usefixtures("tiny")
def test_the_report_has_a_row_for_each_plan_and_a_picture(tmp_path: Path) -> None:
    models, path = ["tinyvla-400m", "tinyvla-1.3b"], tmp_path / "fig16.json"
    said = command.run(
        ["fig16", "--json", str(path), "--picture", str(tmp_path / "fig16.png"), "--models", ",".join(models)]
        + [*SHORT, *STAGES]
    )
    assert said == 0
    assert (tmp_path / "fig16.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads(path.read_text(encoding="utf-8"))
    for model in models:
        rows = [row for row in report["rows"] if row["model"] == model]
        check, seq, *plans = rows
        assert (check["measure"], check["bit_equal"], check["steps"]) == ("check", 1, 3)
        assert check["batched_difference"] < 1e-3
        assert (seq["mode"], seq["over_seq"]) == ("seq", 1.0)
        found = [(row["fetch_offset"], row["pp_perception"], row["pp_generation"]) for row in plans]
        assert found == list(product((0, -1), (3,), (1, 2)))
        for row in plans:
            assert row["over_seq"] == pytest.approx(row["chunks_per_s"] / seq["chunks_per_s"])
            assert row["n"] == 1
    assert report["paper"] == fig16.PAPER


def row(model: str, offset: int, stages: int, rate: float) -> dict[str, Any]:
    named: dict[str, Any] = {"model": model, "sizes": model, "device": "cpu", "cores": 1, "measure": "rounds", "n": 3}
    named["pp_perception"] = 1
    return {
        **named,
        "mode": "seq" if stages == 0 else "auras",
        "fetch_offset": offset,
        "pp_generation": max(stages, 1),
        "chunks_per_s": rate,
        "over_seq": rate / 2,
    }


def test_the_table_marks_what_is_twice_as_quick() -> None:
    report = Report("fig16")
    shapes = {"million": 1.0, "steps": 3, "prefix": 8, "image_px": 28, "vision": "1 x 2", "language": "1 x 2"}
    check: dict[str, Any] = {
        "unet": "8-16",
        "pp_generation": 2,
        "batched_difference": 1e-6,
        "measure": "check",
        "device": "cpu",
    }
    check |= {"cores": 1, "bit_equal": 1, "one_stage_difference": 0.0}
    report.rows = [{"model": "m", "sizes": "m-quarter", **shapes, **check}, row("m", 0, 0, 2.0)]
    report.rows += [
        row("m", offset, stages, rate) for offset, stages, rate in ((0, 1, 3.0), (-1, 1, 3.9), (-1, 2, 4.0))
    ]
    text = fig16.table(report)
    assert fig16.PAPER in text
    assert "1.0 M parameters" in text
    lines = [line for line in text.splitlines() if line.strip().startswith("pp_perception")]
    assert [line.split()[2:] for line in lines] == [["3.00", "(1.50)"], ["3.90", "(1.95)", "4.00", "(2.00)*"]]


@pytest.mark.usefixtures("tiny")
def test_a_schedule_that_computes_another_thing_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(bench: object, generation: str) -> None:
        raise RuntimeError("request 0: auras in one stage differs")

    monkeypatch.setattr(same, "check_equal", refuse)
    report = fig16.run(["--models", "tinyvla-400m", *SHORT, *STAGES], lambda text: None)
    assert report.rows == []
    assert report.more["failed"] == ["tinyvla-400m on 1 core: request 0: auras in one stage differs"]


def test_the_quarters_are_of_the_published_sizes() -> None:
    """More parameters in the same order, the same parts; each is far below its model."""
    with torch.device("meta"):
        counts = {
            name: sum(
                p.numel()
                for part in (build_llava_pythia(TINYVLAS[name]), *build_head(TINYVLAS[name]))
                for p in part.parameters()
            )
            for model in fig16.MODELS
            for name in (model, model + QUARTER)
        }
    quarters = [counts[model + QUARTER] for model in fig16.MODELS]
    assert quarters == sorted(quarters)
    for model in fig16.MODELS:
        assert counts[model] > 15 * counts[model + QUARTER]
        published, quarter = TINYVLAS[model], TINYVLAS[model + QUARTER]
        assert published.language.width == 4 * quarter.language.width
        assert published.language.heads == 4 * quarter.language.heads
        assert published.vision.width == 4 * quarter.vision.width
        assert (quarter.horizon, quarter.actions, quarter.state) == (16, 10, 7)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--models", "tinyvla-2b"], "--models: 'tinyvla-2b' is not known"),
        (["--offsets", "1"], "fetch_offset"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--steps", "3"], "--pp-generation: 5 stages for 3 steps"),
        (["--pp-perception", "0"], "pp_perception"),
    ],
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fig16.run(argv, print)
    assert said in capsys.readouterr().err
