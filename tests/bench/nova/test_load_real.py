"""`auras bench nova-load --device cpu` without servers: its ratios, its simulated rows, its refusals.

Guards: a ratio taken the wrong way round or over the wrong rounds; a plain key that is not the worst model's; a
scheduler that is refused only after an hour; a simulation that is not the load that was measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from auras_ros.bench.nova import a6000, load, load_real
from auras_ros.bench.nova.load_real import E2E, TBT, ratios, simulated, worst
from auras_ros.bench.peers_vlm.client import Load
from auras_ros.bench.peers_vlm.contest import POISSON, ModelWindows, Window
from auras_ros.bench.peers_vlm.stream import StreamedAnswer
from auras_ros.bench.peers_vlm.workload import Shape
from auras_ros.report.result import Report

SHAPE = Shape(336, 1.0, (20, 40), (4, 8))


def window(e2e_s: float, longest_s: float) -> Window:
    answer = StreamedAnswer.__new__(StreamedAnswer)
    for name, value in {"sent_s": 0.0, "ttft_s": 0.1, "between_s": (0.01, longest_s), "e2e_s": e2e_s}.items():
        object.__setattr__(answer, name, value)
    return Window(Load((answer,), 1.0, 0.0), 0.0)


def measured(model: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> ModelWindows:
    found = ModelWindows(model, SHAPE, 2)
    found.windows[POISSON] = {
        "vllm compiled": [window(*each) for each in theirs],
        "auras interleaved:320": [window(*each) for each in ours],
    }
    found.rates_hz = {POISSON: 0.5}
    return found


def test_ratios_are_ours_over_vllms_within_each_round_and_the_plain_keys_are_the_worst() -> None:
    slow = [(4.0, 0.8), (2.0, 1.0), (8.0, 0.5)]
    found = ratios(measured("tiny-qwen", [(2.0, 0.2), (3.0, 0.3), (2.0, 0.4)], slow), ["interleaved:320", "static:1"])
    assert found == pytest.approx({f"{TBT}_interleaved_320_tiny_qwen": 0.3, f"{E2E}_interleaved_320_tiny_qwen": 0.5})
    found |= ratios(measured("qwen-0.5b", [(4.4, 0.2)], [(4.0, 0.8)]), ["interleaved:320"])
    assert worst(found) == pytest.approx({TBT: 0.3, E2E: 1.1})
    assert worst({f"{TBT}_static_1_tiny_qwen": 9.0}) == {}


def test_the_simulated_rows_rank_every_scheduler_as_the_real_ones() -> None:
    options = argparse.Namespace(rounds=2, requests=6, seed=0)
    found = measured("tiny-qwen", [(2.0, 0.2)], [(4.0, 0.8)])
    rows = simulated(a6000.profile(), ["interleaved:320", "pf-limit:5", "nova"], found, options)
    assert [row["side"] for row in rows] == ["auras interleaved:320", "auras pf-limit:5", "auras nova"]
    assert sorted(row["rank"] for row in rows) == [1, 2, 3]
    assert rows[0]["rank_here"] == 1  # the others were not measured
    by_mean = sorted(rows, key=lambda row: row["e2e_mean_ms"])
    assert [row["rank"] for row in by_mean] == [1, 2, 3]
    assert simulated(a6000.profile(), ["interleaved:320"], found, options)[0]["e2e_mean_ms"] == rows[0]["e2e_mean_ms"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--schedulers", "fastest"], "engine: scheduler: 'fastest' is none of"),
        (["--cores", "1"], "--cores: from 2"),
        (["--share", "0"], "--share: above 0, to 1"),
        (["--profiles", "tiny-qwen"], "is not MODEL=FILE"),
        (["--profiles", "tiny-qwen=/nowhere"], "/nowhere: not a profile"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_at_once(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        load.run(["--device", "cpu", "--setup", str(tmp_path / "none"), *given], print)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_table_has_a_line_for_each_side_and_for_what_was_not_measured() -> None:
    report = Report("nova-load", more={"device": "cpu"}, summary={TBT: 0.25})
    row = {"model": "m", "load": POISSON, "rate_hz": 0.5, "cores": 2, "rounds": 1}
    figures = dict.fromkeys(
        ("requests_per_s", "e2e_mean_ms", "e2e_max_ms", "ttft_mean_ms", "tbt_mean_ms", "tbt_p99_ms", "tbt_max_ms",
         "cpu_s_per_request"), 1.5,
    )  # fmt: skip
    report.rows = [{**row, "side": "vllm compiled", **figures}, {**row, "side": "auras nova", "why": "too slow"}]
    text = load_real.table(report)
    assert "vllm compiled" in text
    assert "auras nova was not measured: too slow" in text
    assert "tbt_max_over_vllm" in text
