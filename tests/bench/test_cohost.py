"""`auras bench cohost`: its arithmetic, what it refuses, and one short run.

Guards: the rate alone and the rate beside taken for each other; windows of different rounds compared; a model that was
not busy and nobody saw it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auras_ros.bench.cohost.command import run, summarised, window_row
from tests.checkpoints.vlm.folders import write

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")


def test_the_ratio_is_taken_within_a_round() -> None:
    rows = [
        {"round": number, "beside": beside} | window_row([period_ms] * 10, 0.9 * beside * period_ms / 100)
        for number, beside, period_ms in [(0, False, 50.0), (0, True, 55.0), (1, True, 200.0), (1, False, 100.0)]
    ]
    found = summarised([*rows, {"round": 2, "beside": False} | window_row([50.0], 0)])
    assert found["chunk_rate_kept"] == pytest.approx((50 / 55 + 0.5) / 2)
    assert found["chunk_rate_kept_least"] == pytest.approx(0.5)
    assert (found["rounds"], found["vlm_busy"]) == (2, pytest.approx(0.9))
    assert found["frame_ms_p50_beside"] == pytest.approx(127.5)


def test_a_round_that_is_not_whole_has_no_ratio() -> None:
    assert summarised([{"round": 0, "beside": True} | window_row([50.0] * 3, 0.1)]) == {}


@needs_two_cores
def test_a_folder_without_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--vlm", str(tmp_path / "none")], print)
    assert ended.value.code == 2
    assert "--vlm: " in capsys.readouterr().err


@needs_two_cores
def test_one_round(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    write("smolvlm", tmp_path)
    short = ["--rounds", "1", "--seconds", "0.2", "--steps", "4", "--pp-generation", "2"]
    report = run(["--vlm", str(tmp_path), *short], lambda _: None)
    assert "failed" not in report.more
    alone, beside = (row for which in (False, True) for row in report.rows if row["beside"] is which)
    assert alone["vlm_busy"] == 0 < beside["vlm_busy"]
    assert report.summary["rounds"] == 1
