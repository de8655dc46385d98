"""Durations are measured on live workers, each as often as asked, interleaved.

Guards: a mode left out; warm-up counted; a worker that fails leaving the measurement waiting.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import pytest

from auras_ros.loading import pipeline
from auras_ros.measure import durations
from auras_ros.measure.durations import FrameDuration, measure_durations
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.diffusion import DiffusionPolicy
from tests.evaluate.tables import tiny_checkpoint
from tests.pipeline.elsewhere import Elsewhere, values_stay_behind


def test_every_worker_of_every_mode_is_timed() -> None:
    plans = {
        "seq": Plan(),
        "dec": Plan(mode="dec"),
        "par": Plan(mode="par", concurrency=2),
        "auras": Plan(mode="auras", pp_generation=2),
    }
    said: list[str] = []
    found = measure_durations(tiny_checkpoint(), plans, rounds=2, frames=3, say=said.append)
    assert list(found) == ["seq", "dec/perceive", "dec/generate", "par", "auras"]
    for key, duration in found.items():
        assert duration.n >= 2 * 3 * (2 if key == "par" else 1)
        assert duration.p10_s is not None
        assert duration.p90_s is not None
        assert 0 < duration.p10_s <= duration.seconds <= duration.p90_s
    assert [text.rpartition(", ")[2] for text in said] == ["seq", "dec", "par", "auras"] * 2


def test_a_worker_waits_for_an_observation_that_is_new() -> None:
    """With observations 40 ms apart, three frames and the discarded one cannot begin within less than 80 ms."""
    origins: list[int] = []
    latch = durations._Run._latch

    class Noted(durations._Run):
        def _latch(self, now_ns: int) -> Any:
            seen = latch(self, now_ns)
            origins.append(seen.origin.mono_ns)
            return seen

    measured = Noted(tiny_checkpoint(), Plan(), 40.0)
    try:
        measured.round("seq", 3)
    finally:
        measured.executor.close()
    distinct = sorted(set(origins))
    assert len(distinct) >= 4
    assert {origin % 40_000_000 for origin in distinct} == {0}
    assert measured.result("seq")["seq"].n >= 3


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_frames_that_only_move_perception_on_do_not_count(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generation takes 30 ms, and of the frames between two observations, all but one do without it."""
    predict = DiffusionPolicy.predict

    def slow(*arguments: Any) -> Any:
        time.sleep(0.015)  # two steps
        return predict(*arguments)

    monkeypatch.setattr(DiffusionPolicy, "predict", slow)
    plan = Plan(mode="auras", pp_perception=stages)
    found = measure_durations(tiny_checkpoint(), {"auras": plan}, rounds=2, frames=4, observation_ms=10.0)
    assert found["auras"].n >= 8
    assert found["auras"].p10_s is not None
    assert found["auras"].p10_s >= 0.03


def test_a_request_of_par_is_timed_beside_those_of_all_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that does one thing at a time four requests side by side take four times as long. First come, first
    served: who releases a lock may take it again before another one has woken."""
    predict, turn, waiting = DiffusionPolicy.predict, threading.Condition(), deque[object]()

    def alone(*arguments: Any) -> Any:
        with turn:
            waiting.append(ticket := object())
            turn.wait_for(lambda: waiting[0] is ticket)
        time.sleep(0.01)  # a step of two
        with turn:
            waiting.popleft()
            turn.notify_all()
        return predict(*arguments)

    monkeypatch.setattr(DiffusionPolicy, "predict", alone)
    plans = {"seq": Plan(), "par": Plan(mode="par", concurrency=4)}
    found = measure_durations(tiny_checkpoint(), plans, rounds=2, frames=4, observation_ms=100.0)
    assert found["seq"].seconds >= 0.02
    assert found["par"].seconds >= 0.06


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = durations._Run(tiny_checkpoint(), Plan(), 0)

    def broken(*arguments: Any) -> Any:
        raise RuntimeError("no such step")

    monkeypatch.setattr(DiffusionPolicy, "predict", broken)
    try:
        with pytest.raises(RuntimeError, match="a worker failed"):
            measured.round("seq", 3)
    finally:
        measured.executor.close()


def test_a_worker_that_stands_still_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "LIMIT_S", 0.05)
    measured = durations._Run(tiny_checkpoint(), Plan(), 10**18)  # there is never anything new
    measured._newest = measured._latch(0)
    measured.executor.ledger.interval_ns = 10**18
    measured.executor.ledger.admit(measured._newest.origin, 0, 0)
    try:
        with pytest.raises(
            RuntimeError, match=r"durations: seq: frame had no 4 frames that ended with a chunk in 0\.05 s"
        ):
            measured.round("seq", 3)
    finally:
        measured.executor.close()


def test_the_first_frame_of_each_round_is_discarded() -> None:
    measured = durations._Run(tiny_checkpoint(), Plan(), 0)
    measured.executor.close()
    for frames in ([90, 1, 2], [80, 3]):
        measured._keep({"frame": frames})
    assert measured._kept_ns == {"frame": [1, 2, 3]}
    duration = measured.result("seq")["seq"]
    assert duration.n == 3
    assert (duration.seconds, duration.p10_s, duration.p90_s) == pytest.approx((2e-9, 1.2e-9, 2.8e-9))


def test_a_given_duration_says_that_it_was_not_measured() -> None:
    assert FrameDuration(0.3).n == 0


def test_a_guided_plan_is_timed_too() -> None:
    found = measure_durations(tiny_checkpoint(), {"seq": Plan.parse("quick,guide=rtc")}, rounds=1, frames=3)
    assert found["seq"].n >= 3
    assert found["seq"].seconds > 0


def test_on_another_device_the_checkpoint_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights are played on the CPU afterwards, and all plans share them."""
    asked: list[str] = []

    def device(name: str) -> Elsewhere:
        asked.append(name)
        return Elsewhere()

    monkeypatch.setattr(pipeline, "make_device", device)
    values_stay_behind(monkeypatch)
    checkpoint = tiny_checkpoint()
    plans = {"seq": Plan(), "auras": Plan(mode="auras", pp_generation=2)}
    found = measure_durations(checkpoint, plans, rounds=1, frames=2, device="cuda")
    assert asked == ["cuda", "cuda"]
    assert set(found) == set(plans)
    assert {each.device.type for each in checkpoint.policy("quick").parameters()} == {"cpu"}
