"""`auras bench nova-offload`: its arithmetic, what it refuses, and one short run.

Guards: a ratio between windows of different rounds; a page cache that nobody counted; the best K shown as the result; a
link that is too slow counted as one that hides.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.offload import PAPER, run, side_row, summarised, table
from auras_ros.bench.nova.offload_serving import SEEDS, serving_rows, slower
from auras_ros.cli import bench as cli_bench

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
MB = 1_000_000
FACTS = {"tower_bytes": 200 * MB, "layer_bytes": 8 * MB}


def windows(*ms: float, resident: int = 500, cached: int = 0) -> list[dict[str, Any]]:
    memory = {"resident_bytes": resident * MB, "cached_bytes": cached * MB}
    return [{"ms": [each, each, 9 * each], "major_faults": 2.0, **memory} for each in ms]


def test_overhead_is_taken_within_a_round_and_memory_counts_the_page_cache() -> None:
    base = windows(100, 200, 300)
    link = {"bandwidth": 2e9, "demand": 4e8, "holds": True, "layers_resident": 0}
    row = side_row("swap-2", windows(102, 202, 330, resident=290, cached=10), base, base, FACTS | link)
    assert row["overhead"] == pytest.approx(0.02)
    assert (row["overhead_low"], row["overhead_high"]) == (pytest.approx(0.015), pytest.approx(0.06))
    assert (row["memory_mb"], row["page_cache_mb"]) == (300, 10)
    assert row["saved"] == pytest.approx(1.0)
    assert (row["link_mb_s"], row["needed_mb_s"], row["holds"]) == (2000, 400, True)
    assert (row["ms"], row["rounds"], row["major_faults"]) == (202, 3, 2.0)


def test_the_headline_is_the_worst_where_eq_8_holds() -> None:
    rows = [
        {"side": "resident", "overhead": 0.0, "saved": 0.0},
        {"side": "swap-2", "overhead": 0.01, "saved": 0.9, "holds": True},
        {"side": "swap-5", "overhead": 0.02, "saved": 0.8, "holds": True},
        {"side": "swap-6", "overhead": 0.5, "saved": 0.1, "holds": False},
        {"side": "mmap cold", "overhead": 0.3, "saved": 0.0},
    ]
    found = summarised(rows)
    assert (found["latency_overhead"], found["memory_saved"]) == (0.02, 0.8)
    assert found["latency_overhead_mmap_cold"] == 0.3
    assert found["memory_saved_swap_6"] == 0.1
    assert "latency_overhead_resident" not in found
    assert "latency_overhead" not in summarised(rows[3:])


@needs_two_cores
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--physical", "1,2"], "--physical: from 2 to 31"),
        (["--layers", "4", "--physical", "4"], "--physical: from 2 to 3"),
        (["--width", "100"], "--width: must be a multiple of 64"),
        (["--folder", "/nowhere"], "--folder: /nowhere is not a folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments, print)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@needs_two_cores
def test_one_short_run(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    small = ["--layers", "6", "--width", "64", "--px", "56", "--physical", "2", "--rounds", "2", "--forwards", "1"]
    report = run([*small, "--requests", "3", "--folder", str(tmp_path)], lambda _: None)
    assert "failed" not in report.more
    (served,) = (row for row in report.rows if "measure" in row)
    assert (served["side"], served["n"], served["paper_mean_e2e_s"]) == ("swap-2", SEEDS, 11.85 / 11.96)
    assert report.summary["serving_mean_e2e_over_resident"] == served["mean_e2e_s"]
    measured = [row for row in report.rows if "measure" not in row]
    sides = {row["side"]: row for row in measured}
    baselines = {f"{name} {word}" for name in ("mmap", "accelerate") for word in ("cold", "warm")}
    assert set(sides) == {"resident", "plain", "swap-2", *baselines}
    assert sides["resident"]["overhead"] == 0
    assert sides["swap-2"]["beside"] == "resident"
    assert sides["mmap cold"]["beside"] == "plain"
    assert sides["swap-2"]["paper_ms"] == PAPER["swap-2"][0]
    assert all(row["page_cache_mb"] == 0 for row in measured)
    assert all(row["cores"] == 1 for row in measured)
    assert "swap-2" in table(report)
    assert list(tmp_path.iterdir()) == []


def test_a_request_waits_for_the_slower_vision_stage() -> None:
    """The slower one takes longer in a queue than alone, and nothing else of the profile changes."""
    profile = a6000.profile()
    own = slower(profile, 1.1)
    assert own.vision == pytest.approx(1.1 * profile.vision)
    assert own.shared.vision == pytest.approx(1.1 * profile.shared.vision)
    assert {size: times.vision for size, times in own.corun.items()} == pytest.approx(
        {size: 1.1 * times.vision for size, times in profile.corun.items()}
    )
    assert replace(own, vision=profile.vision, corun=profile.corun, shared=profile.shared) == profile
    rows = serving_rows({"swap-2": 0.0, "swap-9": 0.05}, 1, math.inf, 0, requests=60, seeds=3)
    assert [(row["side"], row["mean_e2e_s"] > 1.05) for row in rows] == [("swap-2", False), ("swap-9", True)]
    assert rows[0]["mean_e2e_s"] == rows[0]["max_e2e_s"] == 1.0
    assert ["paper_mean_e2e_s" in row for row in rows] == [True, False]


def test_the_command_line_finds_it() -> None:
    assert cli_bench._module("nova-offload").run is run
