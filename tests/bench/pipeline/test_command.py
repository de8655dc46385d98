"""`auras bench pipeline`: it measures the real modes, checks them first, and compares what it says it compares."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auras_ros.bench.pipeline import command
from auras_ros.bench.pipeline.summary import rate_rows, summary
from auras_ros.cli import main as cli
from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant
from auras_ros.measure.memory import Growth
from auras_ros.measure.minutes import CUT, OverError
from auras_ros.measure.window import Length
from auras_ros.pipeline.plan import Plan
from auras_ros.report.result import Report
from tests.bench.registered import NAME
from tests.measure.fakes import SIZES, FakeBench, rounds_of

QUICK = [
    "--steps=8", "--pp-generation=1,2,8", "--concurrency=1,2", "--threads=1", "--rounds=1", "--chunks=1", "--seconds=0",
    "--steady=30", "--device=cpu", "--cores=1",
]  # fmt: skip


def test_the_command_compares_the_modes_and_writes_what_it_measured(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "growth_per_chunk", lambda *given: Growth(30, 1.0, 2.0, 0.0, 3.0))  # test_memory's
    path = tmp_path / "pipeline.json"
    assert cli.main(["bench", "pipeline", "--policy", tiny, *QUICK, "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    rows = {row["variant"]: row for row in report["rows"] if row["measure"] == "rounds"}
    assert {row["cores"] for row in report["rows"]} == {1, len(os.sched_getaffinity(0))}  # memory is measured on all
    assert {row["cores"] for row in rows.values()} == {1}
    modes = {row["mode"] for row in rows.values()}
    assert modes == {"seq", "dec", "par", "auras"}
    assert {row["pp_generation"] for row in rows.values() if not row["alpha"]} == {1, 2, 8}
    assert {row["alpha"] for row in rows.values() if row["pp_generation"] == 5} == {0.5, 1.0}
    for row in rows.values():
        assert row["n"] == 1
        assert 0 < row["low"] <= row["chunks_per_s"] <= row["high"]
        if row["mode"] != "dec" and row["fetch_offset"] == 0:  # of those perception may not have come round
            assert row["staleness_ms"] > 0
    summed, auras = report["summary"], rows["auras, stages 8"]["chunks_per_s"]
    assert summed["auras_over_seq"] == pytest.approx(auras / rows["seq"]["chunks_per_s"])
    assert summed["auras_over_seq_tiny"] == summed["auras_over_seq"]
    batch = rows["par, batch 8"]
    assert summed["auras_over_batched"] == pytest.approx(auras / batch["chunks_per_s"])
    par = rows[f"par, concurrency {summed['par_concurrency']}"]
    assert summed["auras_over_par"] == pytest.approx(auras / par["chunks_per_s"])
    assert summed["control_over_seq"] == rows["par, concurrency 1"]["chunks_per_s"] / rows["seq"]["chunks_per_s"]
    assert [row["mode"] for row in report["rows"] if row["measure"] == "memory"] == ["seq", "dec", "par", "auras"]
    assert summed["resident_bytes_per_chunk_worst"] == 2.0
    text = capsys.readouterr().out
    assert "bit for bit" in text
    assert "1 core for each" in text
    assert "auras, stages 5, alpha 0.5" in text
    assert "auras_over_par" in text


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--policy=dp,huge", "'huge' is not known; known: dp"),
        ("--pp-generation=1,50", "50 stages for 40"),
        ("--pp-generation=0,8", "pp_generation: must be"),
        ("--rounds=0", "--rounds"),
        ("--alpha=-1", "alpha"),
        ("--concurrency=0", "concurrency"),
        ("--threads=0", "--threads"),
        ("--threads=999", "--threads"),
        ("--cores=999", "--cores: from 1 to the"),
        ("--cores=0", "--cores: from 1 to the"),
        ("--steps=1", "--steps"),
        ("--steps=five", "--steps"),
    ],
)
def test_options_that_cannot_work_end_with_status_2(option: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "pipeline", "--steps=40", option])
    assert ended.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert error.endswith(" (auras bench pipeline --help)")
    assert said in error


@pytest.mark.parametrize(("name", "option"), [("pipeline", "--pp-generation"), ("ros", "--messages")])
def test_a_bench_explains_its_own_options(name: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", name, "--help"])
    assert ended.value.code in (0, None)
    text = capsys.readouterr().out
    assert text.startswith(f"usage: auras bench {name}")
    assert option in text


def test_the_minutes_end_the_memory_too(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[float] = []

    def growth(*given: Any) -> Growth:
        if grown:
            raise OverError
        grown.append(given[-1])
        return Growth(30, 1.0, 2.0, 0.0, 3.0)

    monkeypatch.setattr(command, "growth_per_chunk", growth)
    monkeypatch.setattr(command, "_compare", lambda name, job: None)
    report = command.run(["--policy", tiny, *QUICK], lambda text: None)
    assert grown[0] < time.monotonic() + 60 * 60
    assert report.more == {"left_out": [f"memory: {CUT}"]}
    assert len(report.rows) == 1
    assert report.summary["resident_bytes_per_chunk_worst"] == 2.0


def test_an_interrupted_comparison_keeps_its_whole_rounds(
    tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Variant] = []

    def rate(self: Bench, variant: Variant, length: Length) -> float:
        asked.append(variant)
        if len(asked) == trials + 2 * in_a_round + 1:
            raise KeyboardInterrupt
        return 2.0

    monkeypatch.setattr(Bench, "rate", rate)
    sizes = ["--steps=8", "--pp-generation=1,2,8", "--concurrency=2", "--threads=1", "--steady=30", "--device=cpu"]
    # kinds: seq, dec, par, batched, auras and beside; the others, the control, the curve, the skewed plans
    trials, in_a_round = 3 * 6, 5 + 1 + 3 + 2
    assert cli.main(["bench", "pipeline", "--policy", tiny, *sizes, "--cores=1", "--rounds=4"]) == 130
    text = capsys.readouterr().out
    assert "interrupted while measuring tiny on 1 core" in text
    assert "auras_over_seq" in text
    assert "memory" not in text


def test_the_command_writes_what_is_left_of_a_comparison(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rate(self: Bench, variant: Variant, length: Length) -> float:
        return 0.0 if variant.plan.mode == "dec" else 2.0

    monkeypatch.setattr(Bench, "rate", rate)
    path = tmp_path / "pipeline.json"
    argv = [*QUICK, "--steady=0", "--json", str(path)]
    assert cli.main(["bench", "pipeline", "--policy", tiny, *argv]) == 1
    report = json.loads(path.read_text())
    assert report["failed"] == ["tiny on 1 core, dec: no two chunks in 30 s"]
    assert report["summary"]["auras_over_seq"] == 1.0
    assert "auras_over_dec" not in report["summary"]
    assert "failed: tiny on 1 core, dec: no two chunks in 30 s" in capsys.readouterr().err


def test_the_tables_ratio_is_taken_within_each_round() -> None:
    """A ratio of medians would have said 4. A form that was tried once has the ratio of that round."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    base, rates = {"policy": NAME, "cores": 1}, [1.0, 1.0, 5.0]
    base["measure"] = "rounds"
    rows = [rate_rows(base, {auras: each, seq: rates}, seq, {}, ())[0] for each in ([2.0, 4.0, 10.0], [3.0])]
    assert [row["over_seq"] for row in rows] == [2.0, 3.0]
    assert rate_rows(base, {seq: rates}, None, {}, ())[0]["over_seq"] is None
    line = next(line for line in command.table(Report("pipeline", rows[:1])).splitlines() if "auras" in line)
    assert line.split()[3:8] == ["4.00", "3.00", "to", "7.00", "2.00"]


def test_the_summary_names_the_first_policy_twice_and_the_others_once() -> None:
    _, best = rounds_of(FakeBench({"par, concurrency 3": 2.0})).trial(SIZES.candidates())
    rates = {variant: [1.0, 1.0] for variant in SIZES.contest(best, steps=16)}
    rates[Variant(SIZES.auras(8))] = [4.0, 6.0]
    first, other = summary(rates, best, SIZES, ["_dp_small", ""]), summary(rates, best, SIZES, ["_dp_cores_2"])
    assert first["auras_over_seq"] == first["auras_over_seq_dp_small"] == 5.0
    assert (first["auras_over_seq_low"], first["auras_over_seq_high"]) == (4.5, 5.5)
    assert first["par_concurrency"] == 3
    assert first["auras_alpha_0_5_over_seq_dp_small"] == 1.0
    assert first["auras_8_over_seq"] == first["auras_over_batched"] == 5.0
    assert first["auras_2_over_seq_dp_small"] == first["par_over_seq"] == first["control_over_seq"] == 1.0
    assert other["auras_over_par_dp_cores_2"] == 5.0
    assert all("_dp_cores_2" in key for key in other)
    assert all(np.isfinite(value) for value in first.values())


def test_the_table_shows_each_policy_with_its_forms_and_rounds() -> None:
    rows = [
        {**row, "policy": policy, "variant": policy + measure, "mode": "seq", "measure": measure, "cores": 1}
        for policy in ("one", "two")
        for measure in ("trial", "rounds")
        for row in [
            {
                "chunks_per_s": 4.0,
                "low": 3.0,
                "high": 5.0,
                "n": 7,
                "staleness_ms": None,
                "disturbed": measure == "trial",
            }
        ]
    ]
    text = command.table(Report("pipeline", rows, {"auras_over_seq": 2.5, "auras_over_seq_low": 2.0}))
    places = [text.index(name) for name in ("onetrial", "onerounds", "twotrial", "tworounds")]
    assert places == sorted(places)
    assert "4.00" in text
    assert "3.00 to 5.00" in text
    assert text.count("disturbed") == 2
