"""Interleaved rounds: what is tried, in which order, until when, and what becomes of what fails."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.measure import rounds as rounds_module
from auras_ros.measure.forms import Variant
from auras_ros.measure.minutes import OVER, Ends
from auras_ros.measure.rounds import TRIAL_ROUNDS
from auras_ros.pipeline.plan import Plan
from auras_ros.report.result import Report
from tests.measure.fakes import SIZES, FakeBench, rounds_of


def test_the_best_form_of_every_mode_is_found() -> None:
    fake = FakeBench({"seq, threads 2": 2.0, "par, concurrency 2": 3.0, "par, concurrency 3": 2.5, "dec": 0.5})
    trials, best = rounds_of(fake).trial(SIZES.candidates())
    assert {kind: str(variant) for kind, variant in best.items()} == {
        "seq": "seq, threads 2",
        "dec": "dec",
        "par": "par, concurrency 2",
        "batched": "par, batch 8",
        "auras": "auras, stages 8",
        "beside": "auras, stages 8, offset -1",
    }
    again = {str(variant) for variant, rates in trials.items() if len(rates) == TRIAL_ROUNDS}
    assert {"seq", "seq, threads 2", "par, concurrency 3", "auras, stages 8, threads 2"} <= again


def test_a_hopeless_form_is_tried_once_and_is_no_failure() -> None:
    """Two threads on a busy machine: a window of them may take half a minute."""
    fake = FakeBench({"auras, stages 8, threads 2": 0.04, "seq, threads 2": 0.0})
    rounds = rounds_of(fake)
    trials, best = rounds.trial(SIZES.candidates())
    tried = {str(variant): len(rates) for variant, rates in trials.items()}
    assert tried["auras, stages 8, threads 2"] == 1
    assert tried["auras, stages 8"] == tried["seq"] == TRIAL_ROUNDS
    assert best["auras"].threads == 1
    report = Report("pipeline")
    rounds.tell(report)
    assert report.more == {"left_out": ["tiny, seq, threads 2: no two chunks in 60 s"]}


def test_rounds_are_interleaved_in_changing_order() -> None:
    fake, variants = FakeBench({}), [Variant(SIZES.auras(stages)) for stages in (1, 2, 8)]
    (made := rounds_of(fake, rounds=12)).contest(variants)
    rates = made.rates
    rounds = [tuple(fake.asked[i : i + 3]) for i in range(0, len(fake.asked), 3)]
    assert len(rounds) == 12
    assert all(set(one) == set(variants) for one in rounds)
    assert len(set(rounds)) > 3
    assert [len(values) for values in rates.values()] == [12, 12, 12]


def test_no_further_round_begins_after_the_soft_end() -> None:
    fake, variants = FakeBench({}), [Variant(SIZES.auras(1)), Variant(SIZES.auras(2))]
    (made := rounds_of(fake, ends=Ends(0.0, math.inf))).contest(variants)
    rates = made.rates
    assert [len(values) for values in rates.values()] == [1, 1]


def test_when_the_minutes_are_over_what_was_not_measured_is_named() -> None:
    variants = [Variant(SIZES.auras(1)), Variant(SIZES.auras(2))]
    rounds = rounds_of(FakeBench({}), ends=Ends(0.0, 0.0))
    rounds.contest(variants)
    assert rounds.rates == {}
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

    monkeypatch.setattr(rounds_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    variants = [Variant(SIZES.auras(stages)) for stages in (1, 2, 8)]
    slow = Slow({})
    rounds = rounds_of(slow, ends=Ends(30.0, 60.0))
    rounds.contest(variants, lambda form: slow.prepare(form.plan))
    assert rounds.rates == {}
    assert prepared == [variant.plan for variant in variants[:2]]
    assert rounds.failed == dict.fromkeys(variants, OVER)


def test_what_fails_without_a_word_is_named_by_its_kind() -> None:
    class Full(FakeBench):
        def rate(self, variant: Variant, length: Any) -> float:
            raise MemoryError

    rounds, report = rounds_of(Full({})), Report("pipeline")
    rounds.contest([Variant(Plan("ddpm16"))])
    rounds.tell(report)
    assert report.more["failed"] == ["tiny, seq: MemoryError()"]


def test_what_fails_in_a_round_is_named_and_the_others_go_on() -> None:
    """One mode without two chunks in its window ended a bench of 13 minutes with nothing written."""
    two, three = (Variant(Plan("ddpm16", "par", concurrency=count)) for count in (2, 3))
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(2))
    rounds = rounds_of(FakeBench({str(two): 0.0}, {str(three): "a worker failed\nand more"}))
    rounds.contest([seq, two, three, auras])
    rates = rounds.rates
    assert {variant: len(values) for variant, values in rates.items()} == {seq: 4, auras: 4}
    report = Report("pipeline")
    rounds.tell(report)
    failed = ["tiny, par, concurrency 2: no two chunks in 60 s", "tiny, par, concurrency 3: a worker failed"]
    assert sorted(report.more["failed"]) == failed
