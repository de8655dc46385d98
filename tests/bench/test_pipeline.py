"""`auras bench pipeline`: it measures the real modes, checks them first, and compares what it says it compares."""

from __future__ import annotations

import argparse
import json
import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.bench import pipeline
from auras_ros.bench.pipeline_checks import batched_difference, check_equal
from auras_ros.bench.pipeline_rate import Bench, Length, Meter
from auras_ros.bench.pipeline_summary import ratio, summary
from auras_ros.bench.pipeline_variants import Comparison, Variant, default_threads, default_workers
from auras_ros.cli import main as cli
from auras_ros.evaluate.report import Report
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.slab import Slab
from tests.bench.registered import NAME

SHORT = Length(chunks=1, seconds=0.0, limit_s=60.0)
SIZES = Comparison("ddpm16", (1, 2, 8), 0.0, (1, 2, 3), (1, 2), cores=2)
QUICK = [
    "--steps=8", "--pp-generation=1,2,8", "--workers=1,2", "--threads=1", "--rounds=1", "--chunks=1", "--seconds=0",
    "--steady=30", "--device=cpu",
]  # fmt: skip


# -- the command ------------------------------------------------------------------------------------------


def test_the_command_compares_the_modes_and_writes_what_it_measured(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.json"
    assert cli.main(["bench", "pipeline", "--policy", tiny, *QUICK, "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    rows = {row["variant"]: row for row in report["rows"] if row["measure"] == "rounds"}
    modes = {row["mode"] for row in rows.values()}
    assert modes == {"seq", "dec", "par", "auras"}
    assert {row["pp_generation"] for row in rows.values() if not row["alpha"]} == {1, 2, 8}
    assert {row["alpha"] for row in rows.values() if row["pp_generation"] == 5} == {0.5, 1.0}
    for row in rows.values():
        assert row["n"] == 1
        assert 0 < row["low"] <= row["chunks_per_s"] <= row["high"]
    summed, auras = report["summary"], rows["auras, stages 8"]["chunks_per_s"]
    assert summed["auras_over_seq"] == pytest.approx(auras / rows["seq"]["chunks_per_s"])
    assert summed["auras_over_seq_tiny"] == summed["auras_over_seq"]
    (par,) = (row for row in rows.values() if row["mode"] == "par")
    assert summed["auras_over_par"] == pytest.approx(auras / par["chunks_per_s"])
    assert summed["par_workers"] == par["workers"]
    assert [row["mode"] for row in report["rows"] if row["measure"] == "memory"] == ["seq", "dec", "par", "auras"]
    text = capsys.readouterr().out
    assert "bit for bit" in text
    assert "auras, stages 5, alpha 0.5" in text
    assert "auras_over_par" in text


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--policy=dp,huge", "'huge' is not known; there is dp"),
        ("--pp-generation=1,50", "50 stages for 40"),
        ("--pp-generation=0,8", "pp_generation: must be"),
        ("--rounds=0", "--rounds"),
        ("--alpha=-1", "alpha"),
        ("--workers=0", "workers"),
        ("--threads=0", "--threads"),
        ("--threads=999", "--threads"),
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
    """Design rule 7: bit for bit in one stage, unbatched; close in a batch."""
    check_equal(bench, "ddpm4")
    assert batched_difference(bench, "ddpm4", 4) < 1e-5


def test_a_mode_that_computes_something_else_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Slab.admit
    monkeypatch.setattr(Slab, "admit", lambda self, noise: right(self, noise * (1 + 1e-6)))
    with pytest.raises(RuntimeError, match="request 0: auras in one stage differs from seq by up to"):
        check_equal(bench, "ddpm4")
    assert batched_difference(bench, "ddpm4", 4) > 0


# -- one window -------------------------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def emit(meter: Meter, time: Time, strand: str, at_ms: int) -> None:
    """As a strand of that name would, at that moment."""
    time.now = at_ms * 1_000_000
    thread = threading.Thread(target=meter.emit, args=(None,), name=strand)
    thread.start()
    thread.join()


def test_a_strands_rate_is_that_between_its_first_chunk_and_its_last() -> None:
    """The start of the thread does not count, nor what comes after the window; strands add up."""
    time = Time()
    meter = Meter(2, Length(chunks=2, seconds=0.0), time)
    for strand, at_ms in [("a", 1000), ("b", 1001), ("a", 1010), ("b", 1021), ("a", 1020), ("a", 1030)]:
        emit(meter, time, strand, at_ms)
        assert not meter.over.is_set()
    emit(meter, time, "b", 1041)
    assert meter.over.is_set()
    emit(meter, time, "a", 1042)
    assert meter.rate() == pytest.approx(3 / 0.030 + 2 / 0.040)


def test_a_window_lasts_as_long_as_it_should() -> None:
    time = Time()
    meter = Meter(1, Length(chunks=1, seconds=0.05), time)
    for at_ms in (100, 110, 149):
        emit(meter, time, "a", at_ms)
        assert not meter.over.is_set()
    emit(meter, time, "a", 150)
    assert meter.over.is_set()


def test_a_strand_without_two_chunks_adds_nothing() -> None:
    time = Time()
    meter = Meter(2, Length(), time)
    emit(meter, time, "a", 5)
    assert meter.rate() == 0
    emit(meter, time, "b", 6)
    emit(meter, time, "b", 16)
    assert meter.rate() == pytest.approx(100)


@pytest.mark.parametrize("text", ["ddpm4", "ddpm4,mode=dec", "ddpm4,mode=par,workers=2", "ddpm4,mode=auras"])
def test_every_mode_gives_chunks_at_a_rate(bench: Bench, text: str) -> None:
    variant = Variant(Plan.parse(text))
    assert bench.rate(variant, SHORT) > 0
    assert bench.rate(variant, SHORT) > 0  # and goes on where it ended


def test_par_is_not_held_back_and_its_counts_share_one_executor(bench: Bench) -> None:
    """Requests are not spaced (the baseline would be handicapped), and two workers are two strands of three."""
    two, three = (bench.prepare(Plan("ddpm4", "par", workers=count)) for count in (2, 3))
    assert [strand.name for strand in two.strands] == ["worker0", "worker1"]
    assert two.strands == three.strands[:2]
    assert two.ledger.interval_ns == three.ledger.interval_ns == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_strand_that_fails_ends_the_measurement(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = bench.prepare(Plan("ddpm4"))

    def fail() -> None:
        raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(executor.strands[0], "run", fail)
    with pytest.raises(RuntimeError, match="seq: a strand failed"):
        bench.rate(Variant(Plan("ddpm4")), SHORT)


# -- what is compared, and how ----------------------------------------------------------------------------


class FakeBench:
    """Rates by label, and a note of what was asked for."""

    def __init__(self, rates: dict[str, float]) -> None:
        self.rates, self.asked, self.prepared = rates, [], 0

    def prepare(self, plan: Plan) -> None:
        self.prepared += 1

    def rate(self, variant: Variant, length: Length) -> float:
        self.asked.append(variant)
        return self.rates.get(variant.label, 1.0)


def options(**changes: Any) -> argparse.Namespace:
    told = {"sizes": SIZES, "rounds": 4, "minutes": 60.0, "seed": 0, "length": SHORT}
    return argparse.Namespace(**{**told, **changes})


def say(text: str) -> None:
    pass


def test_the_best_form_of_every_mode_is_found() -> None:
    fake = FakeBench({"seq, threads 2": 2.0, "par, workers 2": 3.0, "par, workers 3": 2.5, "dec": 0.5})
    trials, best = pipeline.trial(fake, NAME, options(), say)  # type: ignore[arg-type]
    assert {mode: variant.label for mode, variant in best.items()} == {
        "seq": "seq, threads 2",
        "dec": "dec, threads 2",
        "par": "par, workers 2",
        "auras": "auras, stages 8",
        "beside": "auras, stages 8, offset -1",
    }
    again = {variant.label for variant, rates in trials.items() if len(rates) == pipeline.TRIAL_ROUNDS}
    assert {"seq", "seq, threads 2", "par, workers 3", "auras, stages 8, threads 2"} <= again


def test_a_hopeless_form_is_tried_once() -> None:
    """Two threads on a busy machine: a window of them may take half a minute."""
    fake = FakeBench({"auras, stages 8, threads 2": 0.04, "dec": 0.0, "dec, threads 2": 0.0})
    trials, best = pipeline.trial(fake, NAME, options(), say)  # type: ignore[arg-type]
    tried = {variant.label: len(rates) for variant, rates in trials.items()}
    assert tried["auras, stages 8, threads 2"] == 1
    assert tried["auras, stages 8"] == tried["dec"] == pipeline.TRIAL_ROUNDS  # a mode keeps one form at least
    assert best["auras"].threads == 1


def test_workers_never_have_more_threads_than_there_are_cores() -> None:
    forms = [(v.plan.workers, v.threads) for v in SIZES.candidates()["par"]]
    assert forms == [(1, 1), (1, 2), (2, 1), (3, 1)]


def test_rounds_are_interleaved_in_changing_order() -> None:
    fake, variants = FakeBench({}), [Variant(SIZES.auras(stages)) for stages in (1, 2, 8)]
    *_, rates = pipeline.contest(fake, NAME, variants, options(rounds=12), random.Random(0), say)  # type: ignore[arg-type]
    rounds = [tuple(fake.asked[i : i + 3]) for i in range(0, len(fake.asked), 3)]
    assert len(rounds) == 12
    assert all(set(one) == set(variants) for one in rounds)
    assert len(set(rounds)) > 3
    assert [len(values) for values in rates.values()] == [12, 12, 12]


def test_no_round_begins_when_the_minutes_are_over() -> None:
    fake, variants = FakeBench({}), [Variant(SIZES.auras(1)), Variant(SIZES.auras(2))]
    *_, rates = pipeline.contest(fake, NAME, variants, options(minutes=0.0), random.Random(0), say)  # type: ignore[arg-type]
    assert [len(values) for values in rates.values()] == [1, 1]


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
    trials, in_a_round = 3 * 5, 3 + 4 + 2  # seq, dec, par, auras and beside; the curve, the others, the skewed plans
    assert cli.main(["bench", "pipeline", "--policy", tiny, *sizes, "--rounds=4"]) == 130
    text = capsys.readouterr().out
    assert "interrupted while tiny was compared; whole rounds count" in text
    assert "auras_over_seq" in text
    assert "memory" not in text


def test_a_mode_that_gives_nothing_in_a_round_is_no_ratio() -> None:
    fake = FakeBench({"auras, stages 2": 0.0})
    with pytest.raises(RuntimeError, match="tiny: auras, stages 2: no two chunks in 60 s"):
        list(pipeline.contest(fake, NAME, [Variant(SIZES.auras(2))], options(), random.Random(0), say))  # type: ignore[arg-type]


def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that is slow for a while is slow for both: here auras is exactly twice as quick throughout."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    assert ratio({seq: [1.0, 5.0, 2.0], auras: [2.0, 10.0, 4.0]}, auras, seq) == (2.0, 2.0, 2.0)


def test_the_summary_names_the_first_policy_twice_and_the_others_once() -> None:
    _, best = pipeline.trial(FakeBench({"par, workers 3": 2.0}), NAME, options(), say)  # type: ignore[arg-type]
    rates = {variant: [1.0, 1.0] for variant in SIZES.contest(best, steps=16)}
    rates[Variant(SIZES.auras(8))] = [4.0, 6.0]
    first, other = summary("dp-small", rates, 8, first=True), summary("dp", rates, 8, first=False)
    assert first["auras_over_seq"] == first["auras_over_seq_dp_small"] == 5.0
    assert (first["auras_over_seq_low"], first["auras_over_seq_high"]) == (4.5, 5.5)
    assert first["par_workers"] == 3
    assert first["auras_alpha_0_5_over_seq_dp_small"] == 1.0
    assert first["auras_8_over_seq"] == 5.0
    assert first["auras_2_over_seq_dp_small"] == first["par_over_seq"] == 1.0
    assert other["auras_over_par_dp"] == 5.0
    assert all("_dp" in key for key in other)
    assert all(np.isfinite(value) for value in first.values())


def test_the_table_shows_each_policy_with_its_forms_and_rounds() -> None:
    rows = [
        {**row, "policy": policy, "variant": policy + measure, "mode": "seq", "measure": measure}
        for policy in ("one", "two")
        for measure in ("trial", "rounds")
        for row in [{"chunks_per_s": 4.0, "low": 3.0, "high": 5.0, "n": 7}]
    ]
    text = pipeline.table(Report("pipeline", rows, {"auras_over_seq": 2.5, "auras_over_seq_low": 2.0}))
    places = [text.index(name) for name in ("onetrial", "onerounds", "twotrial", "tworounds")]
    assert places == sorted(places)
    assert "4.00" in text
    assert "3.00 to 5.00" in text


def test_a_gpu_is_not_asked_for_threads() -> None:
    assert default_threads(16, cuda=True) == (1,)
    assert default_threads(1, cuda=False) == (1,)
    assert tuple(default_threads(2, cuda=False)) == (1, 2)
    assert default_workers(2, cuda=False) == (1, 2, 3, 4)
    assert max(default_workers(2, cuda=True)) == 16


def test_observations_are_always_newer_and_never_the_one_before(bench: Bench) -> None:
    looks = [bench.feed(5) for _ in range(20)]
    stamps = [seen.origin.mono_ns for seen in looks]
    assert stamps == sorted(set(stamps))
    assert not any(torch.equal(a.images, b.images) for a, b in pairwise(looks))
    assert all(seen.images.abs().max() > 0.1 for seen in looks)
