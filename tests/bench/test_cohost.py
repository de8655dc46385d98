"""`auras bench cohost`: its arithmetic, what it refuses, and one short run.

Guards: the rate alone and the rate beside taken for each other; windows of different rounds or of different frame
periods compared; a model that did nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench.cohost.command import run
from auras_ros.bench.cohost.figures import summarised, window_row
from auras_ros.bench.cohost.loads import ProcessLoad, ThreadLoad
from auras_ros.bench.cohost.modes import BESIDE
from tests.checkpoints.vlm.folders import write

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")


def row(number: int, mode: str, frame_ms: float, tokens: int = 0, period_ms: float = 0.0) -> dict[str, Any]:
    interval_ms = max(frame_ms, period_ms)
    where = {"round": number, "mode": mode, "period_ms": period_ms}
    return {**where, **window_row([interval_ms] * 10, [frame_ms] * 10, tokens)}


def test_a_window_has_rates_and_spreads() -> None:
    found = window_row([100.0, 100.0, 200.0], [30.0, 40.0, 50.0], 80)
    assert (found["n"], found["chunks_per_s"], found["vlm_tokens_per_s"]) == (3, 7.5, 200.0)
    assert (found["interval_ms_p50"], found["interval_ms_p100"]) == (100.0, 200.0)
    assert (found["frame_ms_p50"], found["frame_ms_p100"]) == (40.0, 50.0)


def test_ratios_are_taken_within_a_round() -> None:
    rows = [
        row(0, "alone", 50.0),
        row(0, "two_processes", 55.0, 110),
        row(1, "two_processes", 200.0, 100),
        row(1, "alone", 100.0),
        row(2, "alone", 50.0),
        row(0, "one_process", 100.0, 100),
    ]
    found = summarised(rows)
    assert found["chunk_rate_kept"] == pytest.approx((50 / 55 + 0.5) / 2)
    assert found["chunk_rate_kept_least"] == pytest.approx(0.5)
    assert found["frame_p99_over_alone"] == pytest.approx((1.1 + 2) / 2)
    assert found["chunk_rate_kept_one_process"] == pytest.approx(0.5)
    assert found["vlm_tokens_per_s"] == pytest.approx((200 + 50) / 2)
    assert (found["rounds"], found["frame_ms_p50_alone"]) == (2, 50.0)
    assert not any(name.startswith("grid_") for name in found)


def test_frames_on_the_grid_are_compared_with_frames_on_the_grid() -> None:
    rows = [row(0, "alone", 30.0), row(0, "one_core", 45.0, 200, 100.0), row(0, "alone", 36.0, 0, 100.0)]
    found = summarised(rows)
    assert found["grid_frame_p99_over_alone_one_core"] == pytest.approx(45 / 36)
    assert found["grid_chunk_rate_kept_one_core"] == found["grid_interval_p99_over_alone_one_core"] == 1.0
    assert found["grid_vlm_tokens_per_s_one_core"] == pytest.approx(200.0)
    assert "chunk_rate_kept_one_core" not in found


def test_a_round_that_is_not_whole_has_no_ratio() -> None:
    assert summarised([row(0, "two_processes", 50.0, 9)]) == {}


@needs_two_cores
def test_a_folder_without_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--vlm", str(tmp_path / "none")], print)
    assert ended.value.code == 2
    assert "--vlm: " in capsys.readouterr().err


@pytest.mark.parametrize("kind", [ThreadLoad, ProcessLoad])
def test_a_model_that_cannot_be_loaded_is_reported(kind: type[ThreadLoad | ProcessLoad], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the model's"):
        kind(tmp_path / "none", sorted(os.sched_getaffinity(0))[:1], 1, 0)


@pytest.mark.slow
@needs_two_cores
def test_one_round(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    write("smolvlm", tmp_path)
    short = ["--rounds", "1", "--seconds", "0.2", "--steps", "4", "--pp-generation", "2", "--period-ms", "20"]
    report = run(["--vlm", str(tmp_path), *short], lambda _: None)
    assert "failed" not in report.more
    modes = [mode.name for mode in BESIDE]
    measured = sorted((each["mode"], each["period_ms"]) for each in report.rows)
    back_to_back = [(name, 0.0) for name in ("alone", *modes) if "one_core" not in name]
    assert measured == sorted([*back_to_back, *((name, 20.0) for name in ("alone", *modes))])
    made = {name: sum(each["vlm_tokens_per_s"] for each in report.rows if each["mode"] == name) for name in modes}
    assert sum(made.values()) > 0, made  # on a busy machine a mode may make no token in so short a window
    assert report.summary["rounds"] == 1
