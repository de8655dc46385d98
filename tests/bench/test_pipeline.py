"""`auras bench pipeline`: it measures the real modes, checks them first, and compares what it says it compares."""

from __future__ import annotations

import argparse
import json
import math
import os
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.bench import pipeline, pipeline_checks, pipeline_rounds
from auras_ros.bench.kept import CUT, OVER, Ends, OverError
from auras_ros.bench.pipeline_checks import batched_difference, check_equal, equal_fields, equal_words
from auras_ros.bench.pipeline_rate import Bench, Length, Meter
from auras_ros.bench.pipeline_rounds import TRIAL_ROUNDS, Rounds
from auras_ros.bench.pipeline_steady import Growth
from auras_ros.bench.pipeline_summary import disturbed, rate_row, ratio, summary
from auras_ros.bench.pipeline_variants import Comparison, Variant, control_of, default_workers, forms
from auras_ros.cli import main as cli
from auras_ros.evaluate.report import Report
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.slab import Slab
from tests.bench.registered import NAME

SHORT = Length(chunks=1, seconds=0.0, limit_s=60.0)
SIZES = Comparison("ddpm16", (1, 2, 8), 0.0, (1, 2, 3), (1, 2), cores=2)
QUICK = [
    "--steps=8", "--pp-generation=1,2,8", "--workers=1,2", "--threads=1", "--rounds=1", "--chunks=1", "--seconds=0",
    "--steady=30", "--device=cpu", "--cores=1",
]  # fmt: skip


# -- the command ------------------------------------------------------------------------------------------


def test_the_command_compares_the_modes_and_writes_what_it_measured(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "growth", lambda *given: Growth(30, 1.0, 2.0, 0.0, 3.0))  # test_steady's business
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
        assert row["staleness_ms"] > 0
    summed, auras = report["summary"], rows["auras, stages 8"]["chunks_per_s"]
    assert summed["auras_over_seq"] == pytest.approx(auras / rows["seq"]["chunks_per_s"])
    assert summed["auras_over_seq_tiny"] == summed["auras_over_seq"]
    batch = rows["par, batch 8"]
    assert summed["auras_over_batched"] == pytest.approx(auras / batch["chunks_per_s"])
    par = rows[f"par, workers {summed['par_workers']}"]
    assert summed["auras_over_par"] == pytest.approx(auras / par["chunks_per_s"])
    assert summed["control_over_seq"] == rows["par, workers 1"]["chunks_per_s"] / rows["seq"]["chunks_per_s"]
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
        ("--workers=0", "workers"),
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
    assert error.startswith("auras bench pipeline: error: ")
    assert said in error


@pytest.mark.parametrize(("name", "option"), [("pipeline", "--pp-generation"), ("ros", "--messages")])
def test_a_bench_explains_its_own_options(name: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", name, "--help"])
    assert ended.value.code in (0, None)
    text = capsys.readouterr().out
    assert text.startswith(f"usage: auras bench {name}")
    assert option in text


# -- that nothing is compared which computes something else -----------------------------------------------


def test_the_modes_compute_the_same(bench: Bench) -> None:
    """Rule 7 of docs/pipeline.md: bit for bit in one stage, unbatched; close in a batch."""
    check_equal(bench, "ddpm4")
    assert batched_difference(bench, "ddpm4", 4) < 1e-5


def test_a_mode_that_computes_something_else_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Slab.admit
    monkeypatch.setattr(Slab, "admit", lambda self, noise: right(self, noise * (1 + 1e-6)))
    with pytest.raises(RuntimeError, match="request 0: auras in one stage differs from seq by up to"):
        check_equal(bench, "ddpm4")
    assert batched_difference(bench, "ddpm4", 4) > 0


@pytest.mark.parametrize(
    ("device", "off", "passes"), [("cuda", 1e-4, True), ("cuda", 1e-2, False), ("cpu", 1e-4, False)]
)
def test_on_a_gpu_rounding_ends_no_bench(
    device: str, off: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks have come to the host by then: whether they are on a GPU says nothing."""
    made = {"seq": torch.zeros(1, 4, 2), "auras": torch.full((1, 4, 2), off)}
    monkeypatch.setattr(pipeline_checks, "_examples", lambda bench, count: lambda at: None)
    monkeypatch.setattr(pipeline_checks, "_chunks", lambda bench, plan, seen: dict.fromkeys(range(3), made[plan.mode]))
    there = SimpleNamespace(device=torch.device(device))
    if not passes:
        with pytest.raises(RuntimeError, match="request 0: auras in one stage differs from seq by up to"):
            check_equal(there, "ddpm4")  # type: ignore[arg-type]
        return
    found = equal_fields(check_equal(there, "ddpm4"))  # type: ignore[arg-type]
    assert found == {"bit_equal": 0, "one_stage_difference": pytest.approx(off / 2)}
    assert equal_words(found) == "within 5e-05 of the action range (allowed: 0.001)"
    assert equal_words(equal_fields(0.0)) == "bit for bit"


# -- one window -------------------------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def emit(meter: Meter, time: Time, worker: str, at_ms: int, frame: int | None = None, read_ms: int = 0) -> None:
    """As a worker of that name would, at that moment: each chunk of a frame of its own unless a frame is given."""
    time.now = at_ms * 1_000_000
    read = SimpleNamespace(mono_ns=read_ms * 1_000_000)
    chunk = SimpleNamespace(frame=at_ms if frame is None else frame, contexts=[read])
    thread = threading.Thread(target=meter.emit, args=(chunk,), name=worker)
    thread.start()
    thread.join()


def test_a_workers_rate_is_that_between_its_first_chunk_and_its_last() -> None:
    """The start of the thread does not count, nor what comes after the window; workers add up."""
    time = Time()
    meter = Meter(2, Length(chunks=2, seconds=0.0), time)
    for worker, at_ms in [("a", 1000), ("b", 1001), ("a", 1010), ("b", 1021), ("a", 1020), ("a", 1030)]:
        emit(meter, time, worker, at_ms)
        assert not meter.over.is_set()
    emit(meter, time, "b", 1041)
    assert meter.over.is_set()
    emit(meter, time, "a", 1042)
    assert meter.rate() == pytest.approx(3 / 0.030 + 2 / 0.040)


def test_a_batch_that_was_made_before_the_window_does_not_count() -> None:
    """Chunks of a batch come within a moment of one another: the first four were made before the clock ran."""
    time = Time()
    meter = Meter(1, Length(chunks=3, seconds=0.0), time)
    for at_ms, frame in [(1000, 7), (1001, 7), (1002, 7), (1003, 7), (1100, 8), (1101, 8), (1102, 8), (1103, 8)]:
        emit(meter, time, "frame", at_ms, frame)
    assert meter.rate() == pytest.approx(3 / 0.102)  # over with the third of the second batch


def test_a_chunk_ages_until_the_next_one_comes() -> None:
    """Averaged over time; an older context behind a later chunk of another worker makes nothing fresher."""
    time = Time()
    meter = Meter(1, Length(chunks=9, seconds=0.0), time)
    assert meter.staleness_ms() is None
    for at_ms, read_ms in [(1000, 900), (1100, 1050), (1200, 1000), (1400, 1300)]:
        emit(meter, time, "a", at_ms, read_ms=read_ms)
    aged = 100 * 150 + 100 * 100 + 200 * 250  # interval x age in its middle
    assert meter.staleness_ms() == pytest.approx(aged / 400)


def test_a_window_lasts_as_long_as_it_should() -> None:
    time = Time()
    meter = Meter(1, Length(chunks=1, seconds=0.05), time)
    for at_ms in (100, 110, 149):
        emit(meter, time, "a", at_ms)
        assert not meter.over.is_set()
    emit(meter, time, "a", 150)
    assert meter.over.is_set()


def test_a_window_without_two_chunks_of_every_worker_is_none() -> None:
    """The others' alone would be too few: a worker that the window's limit cut had its share of the cores."""
    time = Time()
    meter = Meter(2, Length(), time)
    emit(meter, time, "a", 5)
    assert meter.rate() == 0
    emit(meter, time, "b", 6)
    emit(meter, time, "b", 16)
    assert meter.rate() == 0
    emit(meter, time, "a", 25)
    assert meter.rate() == pytest.approx(150)


@pytest.mark.parametrize("text", ["ddpm4", "ddpm4,mode=dec", "ddpm4,mode=par,workers=2", "ddpm4,mode=auras"])
def test_every_mode_gives_chunks_at_a_rate(bench: Bench, text: str) -> None:
    variant = Variant(Plan.parse(text))
    assert bench.rate(variant, SHORT) > 0
    assert bench.rate(variant, SHORT) > 0  # and goes on where it ended


def test_par_is_not_held_back_and_its_counts_share_one_executor(bench: Bench) -> None:
    """Requests are not spaced (the baseline would be handicapped), and par of two has two workers of three."""
    two, three = (bench.prepare(Plan("ddpm4", "par", workers=count)) for count in (2, 3))
    assert [worker.name for worker in two.workers] == ["worker0", "worker1"]
    assert two.workers == three.workers[:2]
    assert two.ledger.interval_ns == three.ledger.interval_ns == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_ends_the_measurement(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = bench.prepare(Plan("ddpm4"))

    def fail() -> None:
        raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(executor.workers[0], "run", fail)
    with pytest.raises(RuntimeError, match="seq: a worker failed"):
        bench.rate(Variant(Plan("ddpm4")), SHORT)


# -- what is compared, and how ----------------------------------------------------------------------------


class FakeBench:
    """Rates by label, what fails by label, and a note of what was asked for."""

    def __init__(self, rates: dict[str, float], failures: dict[str, str] | None = None) -> None:
        self.rates, self.failures = rates, failures or {}
        self.asked: list[Variant] = []

    def prepare(self, plan: Plan) -> None:
        pass

    def rate(self, variant: Variant, length: Length) -> float:
        self.asked.append(variant)
        if variant.label in self.failures:
            raise RuntimeError(self.failures[variant.label])
        return self.rates.get(variant.label, 1.0)


NEVER = Ends(math.inf, math.inf)


def rounds_of(fake: FakeBench, rounds: int = 4, ends: Ends = NEVER) -> Rounds:
    options = argparse.Namespace(rounds=rounds, seed=0, length=SHORT)
    return Rounds(fake, NAME, options, ends, lambda text: None)  # type: ignore[arg-type]


def test_the_best_form_of_every_mode_is_found() -> None:
    fake = FakeBench({"seq, threads 2": 2.0, "par, workers 2": 3.0, "par, workers 3": 2.5, "dec": 0.5})
    trials, best = rounds_of(fake).trial(SIZES.candidates())
    assert {kind: variant.label for kind, variant in best.items()} == {
        "seq": "seq, threads 2",
        "dec": "dec",
        "par": "par, workers 2",
        "batched": "par, batch 8",
        "auras": "auras, stages 8",
        "beside": "auras, stages 8, offset -1",
    }
    again = {variant.label for variant, rates in trials.items() if len(rates) == TRIAL_ROUNDS}
    assert {"seq", "seq, threads 2", "par, workers 3", "auras, stages 8, threads 2"} <= again


def test_a_hopeless_form_is_tried_once_and_is_no_failure() -> None:
    """Two threads on a busy machine: a window of them may take half a minute."""
    fake = FakeBench({"auras, stages 8, threads 2": 0.04, "seq, threads 2": 0.0})
    rounds = rounds_of(fake)
    trials, best = rounds.trial(SIZES.candidates())
    tried = {variant.label: len(rates) for variant, rates in trials.items()}
    assert tried["auras, stages 8, threads 2"] == 1
    assert tried["auras, stages 8"] == tried["seq"] == TRIAL_ROUNDS
    assert best["auras"].threads == 1
    report = Report("pipeline")
    rounds.tell(report)
    assert report.more == {"left_out": ["tiny, seq, threads 2: no two chunks in 60 s"]}


def test_no_form_has_more_threads_than_there_are_cores() -> None:
    """But for those of one thread each, which take turns: on one core nothing else is left."""
    par = [(v.plan.workers, v.threads) for v in SIZES.candidates()["par"]]
    assert par == [(1, 1), (1, 2), (2, 1), (3, 1)]
    beside, dec = Plan("ddpm16", "auras", fetch_offset=-1), Plan("ddpm16", "dec")
    assert [form.threads for form in forms(beside, (1, 2, 4), 4)] == [1, 2]
    assert [form.threads for form in forms(dec, (1, 2, 4), 4)] == [1, 2]
    assert [form.threads for form in forms(dec, (1,), 1)] == [1]


def test_rounds_are_interleaved_in_changing_order() -> None:
    fake, variants = FakeBench({}), [Variant(SIZES.auras(stages)) for stages in (1, 2, 8)]
    *_, rates = rounds_of(fake, rounds=12).contest(variants)
    rounds = [tuple(fake.asked[i : i + 3]) for i in range(0, len(fake.asked), 3)]
    assert len(rounds) == 12
    assert all(set(one) == set(variants) for one in rounds)
    assert len(set(rounds)) > 3
    assert [len(values) for values in rates.values()] == [12, 12, 12]


def test_no_further_round_begins_after_the_soft_end() -> None:
    fake, variants = FakeBench({}), [Variant(SIZES.auras(1)), Variant(SIZES.auras(2))]
    *_, rates = rounds_of(fake, ends=Ends(0.0, math.inf)).contest(variants)
    assert [len(values) for values in rates.values()] == [1, 1]


def test_when_the_minutes_are_over_what_was_not_measured_is_named() -> None:
    variants = [Variant(SIZES.auras(1)), Variant(SIZES.auras(2))]
    rounds = rounds_of(FakeBench({}), ends=Ends(0.0, 0.0))
    assert list(rounds.contest(variants)) == []
    report = Report("pipeline")
    rounds.tell(report)
    assert {name: sorted(said) for name, said in report.more.items()} == {
        "left_out": [f"tiny, auras, stages {n}: {OVER}" for n in (1, 2)]
    }


def test_nothing_is_warmed_up_after_the_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench of 17 plans warmed them all up, for minutes on one core, after its hard end."""
    now, prepared = [0.0], list[Plan]()

    class Slow(FakeBench):
        def prepare(self, plan: Plan) -> None:
            prepared.append(plan)
            now[0] += 40.0

    monkeypatch.setattr(pipeline_rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))
    variants = [Variant(SIZES.auras(stages)) for stages in (1, 2, 8)]
    rounds = rounds_of(Slow({}), ends=Ends(30.0, 60.0))
    assert list(rounds.contest(variants)) == [{}]
    assert prepared == [variant.plan for variant in variants[:2]]
    assert rounds.failed == dict.fromkeys(variants, OVER)


def test_the_minutes_end_the_memory_too(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[float] = []

    def growth(*given: Any) -> Growth:
        if grown:
            raise OverError
        grown.append(given[-1])
        return Growth(30, 1.0, 2.0, 0.0, 3.0)

    monkeypatch.setattr(pipeline, "growth", growth)
    monkeypatch.setattr(pipeline, "_compare", lambda name, job: None)
    report = pipeline.run(["--policy", tiny, *QUICK], lambda text: None)
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
    sizes = ["--steps=8", "--pp-generation=1,2,8", "--workers=2", "--threads=1", "--steady=30", "--device=cpu"]
    # kinds: seq, dec, par, batched, auras and beside; the others, the control, the curve, the skewed plans
    trials, in_a_round = 3 * 6, 5 + 1 + 3 + 2
    assert cli.main(["bench", "pipeline", "--policy", tiny, *sizes, "--cores=1", "--rounds=4"]) == 130
    text = capsys.readouterr().out
    assert "interrupted while tiny on 1 core was measured" in text
    assert "auras_over_seq" in text
    assert "memory" not in text


def test_what_fails_in_a_round_is_named_and_the_others_go_on() -> None:
    """One mode without two chunks in its window ended a bench of 13 minutes with nothing written."""
    two, three = (Variant(Plan("ddpm16", "par", workers=count)) for count in (2, 3))
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(2))
    rounds = rounds_of(FakeBench({two.label: 0.0}, {three.label: "a worker failed\nand more"}))
    *_, rates = rounds.contest([seq, two, three, auras])
    assert {variant: len(values) for variant, values in rates.items()} == {seq: 4, auras: 4}
    report = Report("pipeline")
    rounds.tell(report)
    failed = ["tiny, par, workers 2: no two chunks in 60 s", "tiny, par, workers 3: a worker failed"]
    assert sorted(report.more["failed"]) == failed


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


def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that is slow for a while is slow for both: here auras is exactly twice as quick throughout."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    assert ratio({seq: [1.0, 5.0, 2.0], auras: [2.0, 10.0, 4.0]}, auras, seq) == (2.0, 2.0, 2.0)


def test_the_tables_ratio_is_taken_within_each_round() -> None:
    """A ratio of medians would have said 4. A form that was tried once has the ratio of that round."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    base, rates = {"policy": NAME, "cores": 1}, [1.0, 1.0, 5.0]
    rows = [rate_row(base, "rounds", auras, each, {}, False, rates) for each in ([2.0, 4.0, 10.0], [3.0])]
    assert [row["over_seq"] for row in rows] == [2.0, 3.0]
    assert rate_row(base, "rounds", seq, rates, {}, False, [])["over_seq"] is None
    line = next(line for line in pipeline.table(Report("pipeline", rows[:1])).splitlines() if "auras" in line)
    assert line.split()[3:8] == ["4.00", "3.00", "to", "7.00", "2.00"]


def test_what_something_else_had_a_part_in_is_said() -> None:
    """par of one worker does the work of seq: that it was quicker by 12 % was the machine's doing."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    control, quiet = control_of(seq), [4.0, 4.1, 4.0, 3.9]
    assert disturbed({seq: quiet, control: quiet, auras: quiet}, seq) == {}
    said = disturbed({seq: quiet, control: [1.12 * rate for rate in quiet], auras: quiet}, seq)
    assert said == dict.fromkeys((seq, control), "par with one worker (the same work) is 12% faster than seq")
    said = disturbed({seq: quiet, control: quiet, auras: [8.0, 4.0, 8.0, 4.0]}, seq)
    assert said == {auras: "auras, stages 8: windows of the same plan differ by 67% (quartiles)"}
    assert disturbed({auras: [8.0, 4.0]}, seq) == {}  # two windows say nothing


def test_the_summary_names_the_first_policy_twice_and_the_others_once() -> None:
    _, best = rounds_of(FakeBench({"par, workers 3": 2.0})).trial(SIZES.candidates())
    rates = {variant: [1.0, 1.0] for variant in SIZES.contest(best, steps=16)}
    rates[Variant(SIZES.auras(8))] = [4.0, 6.0]
    first, other = summary(rates, best, SIZES, ["_dp_small", ""]), summary(rates, best, SIZES, ["_dp_cores_2"])
    assert first["auras_over_seq"] == first["auras_over_seq_dp_small"] == 5.0
    assert (first["auras_over_seq_low"], first["auras_over_seq_high"]) == (4.5, 5.5)
    assert first["par_workers"] == 3
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
    text = pipeline.table(Report("pipeline", rows, {"auras_over_seq": 2.5, "auras_over_seq_low": 2.0}))
    places = [text.index(name) for name in ("onetrial", "onerounds", "twotrial", "tworounds")]
    assert places == sorted(places)
    assert "4.00" in text
    assert "3.00 to 5.00" in text
    assert text.count("disturbed") == 2


def test_par_has_more_workers_on_a_gpu() -> None:
    assert default_workers(2, cuda=False) == (1, 2, 3, 4)
    assert max(default_workers(2, cuda=True)) == 16


def test_observations_are_always_newer_and_never_the_one_before(bench: Bench) -> None:
    looks = [bench.feed(5) for _ in range(20)]
    stamps = [seen.origin.mono_ns for seen in looks]
    assert stamps == sorted(set(stamps))
    assert not any(torch.equal(a.images, b.images) for a, b in pairwise(looks))
    assert all(seen.images.abs().max() > 0.1 for seen in looks)
