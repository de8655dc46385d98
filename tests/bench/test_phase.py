"""`auras bench phase`: what it makes of what it heard, and, live and cut short, that the report is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench import phase

MS = 1_000_000
COMMAND = "import sys; from auras_ros.cli.main import main; sys.exit(main())"


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--seconds", "nan"], ["--seeds", "0"]])
def test_what_measures_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        phase.run(arguments, print)
    assert arguments[0] in capsys.readouterr().err


def heard(age_ms: int, count: int = 30) -> tuple[list[dict[str, int]], list[tuple[int, int]]]:
    """Frames each 400 ms whose image was taken `age_ms` before; images each 100 ms that are 6 ms on their way."""
    chunks = []
    for frame in range(count):
        latched_ns = 400 * frame * MS
        chunks.append(
            {
                "origin_mono_ns": latched_ns - age_ms * MS,
                "latched_ns": latched_ns,
                "published_ns": latched_ns + 150 * MS,
            }
        )
    return chunks, [(100 * image * MS, (100 * image + 6) * MS) for image in range(4 * count)]


def test_figures_are_counted_from_the_images_stamp() -> None:
    row = phase.measured(*heard(9), missed=1, seconds=12.0)
    assert (row["image_age_ms_p50"], row["image_age_ms_p90"], row["staleness_ms_p50"]) == (9.0, 9.0, 159.0)
    assert (row["transport_ms_p50"], row["camera_period_ms"]) == (6.0, 100.0)
    assert row["excess_periods_p90"] == pytest.approx(0.03)
    assert (row["chunks_per_s"], row["missed_ticks"], row["n"]) == (2.5, 1, 30)


def test_an_episode_that_saw_next_to_nothing_is_none() -> None:
    with pytest.raises(RuntimeError, match="9 chunks"):
        phase.measured(*heard(9, count=9), missed=0, seconds=4.0)


def row(config: str, seed: int, lock: bool, staleness_ms: float) -> dict[str, Any]:
    figures = {"image_age_ms_p90": 1.0, "excess_periods_p90": 0.1, "chunks_per_s": 2.5}
    return {"config": config, "seed": seed, "phase_lock": lock, "staleness_ms_p50": staleness_ms, **figures}


def test_a_gain_is_that_of_a_pair_and_the_config_that_gains_least_counts() -> None:
    rows = [row("a.yaml", 0, False, 250.0), row("a.yaml", 0, True, 160.0), row("a.yaml", 1, False, 170.0)]
    rows += [row("b.yaml", 0, True, 160.0), row("b.yaml", 0, False, 240.0)]
    summary = phase.summarised(rows)
    assert summary["staleness_gain_ms_p50_a"] == 90.0
    assert summary["staleness_gain_ms_p50"] == summary["staleness_gain_ms_p50_b"] == 80.0
    assert summary["pairs"] == 2
    assert summary["staleness_ms_p50_off"] == 240.0
    assert phase.summarised([]) == {}


def test_an_episode_that_fails_is_named_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int, bool]] = []

    def episode(config: Path, seed: int, lock: bool, seconds: float, end_s: float) -> dict[str, float]:
        order.append((config.name, seed, lock))
        if (seed, lock) == (1, True):
            raise RuntimeError("not armed")
        return phase.measured(*heard(9 if lock else 105), missed=0, seconds=seconds)

    monkeypatch.setattr(phase, "_episode", episode)
    report = phase.run(["--seeds", "2", "--config", "pusht.yaml"], lambda text: None)
    assert order == [
        ("pusht.yaml", 0, False),
        ("pusht.yaml", 0, True),
        ("pusht.yaml", 1, True),
        ("pusht.yaml", 1, False),
    ]
    assert "pusht.yaml, seed 1, phase_lock on: not armed" in report.more["failed"]
    assert len(report.rows) == 3
    assert report.summary["staleness_gain_ms_p50"] == 96.0


@pytest.mark.slow
def test_live_the_lock_makes_actions_fresher(tmp_path: Path, ros_domain_id: int) -> None:
    path = tmp_path / "phase.json"
    arguments = ["bench", "phase", "--seeds", "1", "--seconds", "10", "--config", "pusht.yaml", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**os.environ, "ROS_DOMAIN_ID": str(ros_domain_id)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text())
    assert [each["phase_lock"] for each in report["rows"]] == [False, True]
    assert report["summary"]["pairs"] == 1
    on = report["rows"][1]
    assert on["image_age_ms_p50"] < 100.0  # a whole period is what was lost
    assert "staleness_gain_ms_p50" in report["summary"]
