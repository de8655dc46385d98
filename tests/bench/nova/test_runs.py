"""Traces, runs and their figures, which Nova's benches share.

Guards: schedulers that are compared on different traces; a decode that counts as a prefill of a hybrid forward; figures
that depend on the process that simulated; an interval of one trace.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.bench.nova import a6000, runs
from auras_ros.bench.nova.contenders import Contender, DeviceSetup
from auras_ros.engine.scheduler import Dispatch
from auras_ros.measure.minutes import OverError
from auras_ros.report.result import Report

SETUP = DeviceSetup(a6000.profile(), a6000.TBT_BOUND_MS)


def job(family: str = "nova", *setting: float, seed: int = 0) -> runs.RunJob:
    return runs.RunJob(SETUP, Contender(family, setting), runs.poisson(0.5, 4, seed))


def test_a_trace_has_the_same_intervals_at_every_rate_but_for_their_scale() -> None:
    slow, quick = runs.poisson(0.2, 50, 7), runs.poisson(0.8, 50, 7)
    assert [each.tokens for each in slow] == [each.tokens for each in quick]
    assert [each.at_s for each in slow] == pytest.approx([4 * each.at_s for each in quick])
    assert runs.poisson(0.2, 50, 7) == slow != runs.poisson(0.2, 50, 8)


def test_arrivals_and_answers_are_the_papers() -> None:
    trace = runs.poisson(0.5, 4000, 1)
    assert trace[-1].at_s / 4000 == pytest.approx(2.0, rel=0.05)
    gaps = [after.at_s - before.at_s for before, after in pairwise(trace)]
    assert sum(gap > 2.0 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)
    least, _, most = a6000.TOKENS
    assert least <= min(each.tokens for each in trace) <= max(each.tokens for each in trace) <= most
    assert sum(each.tokens for each in trace) / 4000 == pytest.approx(50, rel=0.02)


def test_every_contender_gets_the_same_traces() -> None:
    options: Any = SimpleNamespace(rate_hz=2.0, requests=5)
    jobs = runs.jobs_of(options, SETUP, [0.3, 0.5], [Contender("nova"), Contender("chunk", (128,))])
    for rate in (0.3, 0.5):
        own, its = (make(3) for (which, _), make in jobs.items() if which == rate)
        assert own.trace == its.trace == runs.poisson(2 * rate, 5, 3)
        assert own.contender != its.contender


def request(number: int, came_s: float, first_s: float, ended_s: float, tokens_s: list[float]) -> Any:
    names = {"arrived_ns": came_s, "first_token_ns": first_s, "ended_ns": ended_s}
    timings = SimpleNamespace(**{name: round(value * 1e9) for name, value in names.items()})
    times = [round(each * 1e9) for each in tokens_s]
    return SimpleNamespace(number=number, timings=timings, usage=SimpleNamespace(timings=timings), tokens_ns=times)


def test_the_figures_of_a_run_are_those_of_its_forwards() -> None:
    """Two requests; the second one's prefill is in two chunks, beside one decode of the first and then alone."""
    one = request(1, 0.0, 2.0, 3.5, [2.0, 2.5, 3.5])
    two = request(2, 1.0, 5.0, 6.0, [5.0, 6.0])
    log = [
        (Dispatch("vision", (one,)), 0.0, 1.0),
        (Dispatch("prefill", (one,), (9,)), 1.0, 2.0),
        (Dispatch("decode", (one,), (1,)), 2.0, 2.5),
        (Dispatch("prefill", (one, two), (1, 4)), 2.5, 3.5),
        (Dispatch("prefill", (two,), (5,)), 4.0, 5.0),
        (Dispatch("decode", (two,), (1,)), 5.0, 6.0),
    ]
    forwards: Any = SimpleNamespace(log=[(dispatch, round(a * 1e9), round(b * 1e9)) for dispatch, a, b in log])
    assert runs.figures([one, two], forwards) == pytest.approx(
        {
            "mean_e2e_s": (3.5 + 5.0) / 2,
            "max_e2e_s": 5.0,
            "ttft_s": (2.0 + 4.0) / 2,
            "tbt_ms": (500 + 1000 + 1000) / 3,
            "tbt_ms_p99": 1000,
            "tbt_ms_max": 1000,
            "throughput_hz": 2 / 6.0,
            "decode_batch": 1.0,
            "processing_s": 2.0,
            "processing_square_s2": 4.0,
            "delay_s": (0.0 + 2.0) / 2,
        }
    )


def test_a_seed_gives_the_same_figures_again_and_in_another_process() -> None:
    jobs = [job(), job("pf-limit", 2)]
    with runs.running(1) as here, runs.running(2) as elsewhere:
        end_s = time.monotonic() + 600
        found = here(jobs, end_s)
        assert found == here(jobs, end_s) == elsewhere(jobs, end_s)
    assert found[0] != found[1]
    assert found[0] != runs.run(job(seed=1))


def test_seeds_that_the_time_is_too_short_for_are_left_out_whole() -> None:
    report, calls = Report("x"), list[int]()

    def run_all(jobs: Any, end_s: float) -> list[runs.Figures]:
        calls.append(len(jobs))
        if len(calls) == 3:
            raise OverError
        return [{"mean_e2e_s": float(len(calls))} for _ in jobs]

    makers: Any = {"a": lambda seed: job(seed=seed), "b": lambda seed: job(seed=seed)}
    found = runs.run_seeds(run_all, makers, range(4, 9), 1.0, report, lambda _: None)
    assert found == {name: [{"mean_e2e_s": 1.0}, {"mean_e2e_s": 2.0}] for name in ("a", "b")}
    assert report.more["left_out"] == ["seeds from 6 on: not finished: the bench's minutes were over (--minutes)"]


def test_one_seed_is_too_few() -> None:
    with runs.running(1) as run_all, pytest.raises(OverError):
        runs.run_seeds(run_all, {"a": lambda seed: job(seed=seed)}, range(3), 0.0, Report("x"), lambda _: None)
