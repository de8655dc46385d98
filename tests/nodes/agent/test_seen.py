"""What the agent takes from its topics, with time in the test's hands: stamps, reasons, and pictures that are ready."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from auras_ros.nodes.common.input_counters import STATE
from auras_ros.observation import Observation, Preprocessor, StateSpec
from tests.nodes.agent.inputs_bench import HOUR_MS, MS, SPEC, Bench
from tests.nodes.payloads import HEADER

PATIENCE_S = 20.0


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Bench(monkeypatch)
    yield made
    made.inputs.close()


def test_one_stamp_from_the_future_blinds_neither_camera_nor_joints(bench: Bench) -> None:
    """It made everything later `backwards` until agent/reset."""
    for ahead_ms in (0, HOUR_MS, 0):
        bench.passes(50)
        bench.image(ahead_ms)
        bench.joints(ahead_ms)
    assert bench.sees() == 0
    values = bench.inputs.check().values
    assert (values["top refused"], values["joint_states refused"]) == (1, 1)
    assert (values["fault future"], values["top future"], values["state future"]) == (2, 1, 1)
    assert bench.epochs == 0
    assert any("chrony" in text and "stamp_ahead_ms" in text for text in bench.said)


def test_a_camera_whose_clock_runs_ahead_is_refused_with_the_remedy_in_the_diagnostics(bench: Bench) -> None:
    """Its images cannot be told from those of a clock that is wrong: the observation's age would be made up."""
    for _ in range(20):
        bench.passes(50)
        bench.image(ahead_ms=400)
        bench.joints()
    assert bench.sees() is None
    report = bench.inputs.check()
    assert report.message.startswith(
        "no observation: top: missing: nothing received yet; its newest message was refused:"
    )
    assert "future: stamped 400 ms ahead of this host's clock" in report.message
    assert "chrony" in str(report.values["top refused_for"])


def test_a_camera_ahead_by_less_than_the_tolerance_is_taken_and_never_younger_than_its_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, stamp_ahead_ms=500.0)
    bench.passes(50)
    bench.image(ahead_ms=400)
    bench.joints()
    observation = bench.inputs.latch(bench.now_ns())
    assert isinstance(observation, Observation)
    assert observation.origin_mono_ns == bench.now_ns()
    bench.inputs.close()


@pytest.mark.parametrize("back_ms", [20, 120, 700, HOUR_MS])
def test_a_wall_clock_that_is_set_back_is_survived(bench: Bench, back_ms: int) -> None:
    """Within the tolerance and one period there are observations again, of the new time alone."""
    for _ in range(10):
        bench.passes(50)
        bench.joints()
        bench.image()
    assert bench.sees() == 0
    bench.wall_ms -= back_ms
    seen = []
    for _ in range(4):
        bench.passes(50)
        bench.joints()
        bench.image()
        seen.append(bench.sees())
    assert seen[-2:] == [0, 0]
    assert bench.epochs == int(back_ms >= 700)


def test_a_wall_clock_that_is_set_forward_costs_nothing(bench: Bench) -> None:
    for _ in range(5):
        bench.passes(50)
        bench.joints()
        bench.image()
    bench.wall_ms += HOUR_MS
    bench.passes(50)
    bench.joints()
    bench.image()
    assert (bench.sees(), bench.epochs) == (0, 0)


def test_simulated_time_may_lag_behind_the_stamps(bench: Bench) -> None:
    """It is known as of the last /clock; a reset of it comes as a jump, as before."""
    bench.simulated = True
    bench.image(ahead_ms=700)
    bench.joints(ahead_ms=700)
    assert bench.inputs.check().message == "observations are received"
    assert bench.sees() == -700


def test_simulated_time_that_leaps_ahead_is_another_world(bench: Bench) -> None:
    assert bench.threshold.min_forward.nanoseconds == 10 * 10**9
    bench.image()
    bench.joints()
    assert bench.sees() == 0
    bench.jump(None)
    assert (bench.sees(), bench.epochs) == (None, 1)


def test_diagnostics_say_why_a_stream_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera of the wrong size was `stale: 22539.9 ms old`, and the log alone had `bad_size`."""
    bench = Bench(monkeypatch, resize_images=False)
    bench.image()
    bench.joints()
    assert bench.sees() == 0
    for _ in range(12):
        bench.passes(50)
        bench.image(height=2, data=np.zeros(36, np.uint8))
        bench.joints()
    assert bench.sees() is None
    report = bench.inputs.check()
    assert report.message.startswith("no observation: top: stale: 600.0 ms old, limit 350 ms; its newest message was")
    assert "refused: bad_size: 2 x 6, expected 4 x 6" in report.message
    assert bench.inputs.fault == "top stale"  # the heartbeat stays short
    bench.passes(50)
    bench.joints()
    bench.image()
    assert bench.sees() == 0
    assert "top refused_for" not in bench.inputs.check().values


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A policy of two joints."""
    made = Bench(monkeypatch, replace(SPEC, state=StateSpec(("x", "y"))))
    yield made
    made.inputs.close()


def test_joints_of_several_drivers_are_one_state(halves: Bench) -> None:
    """Each half was refused for the other: the agent saw nothing for ever."""
    for step in range(1, 5):
        halves.passes(50)
        halves.image()
        halves.joints(x=float(step))
        assert (halves.sees() is None) == (step == 1)
        halves.joints(y=-float(step))
        halves.joints(gripper=0.5)
        assert halves.sees() == 0
    observation = halves.inputs.latch(halves.now_ns())
    assert isinstance(observation, Observation)
    assert observation.position.tolist() == [4.0, -4.0]
    values = halves.inputs.check().values
    assert (values["joint_states refused"], values["joint_states of_others"]) == (0, 4)
    assert halves.said == ["no observation: state: missing_joint: nothing received yet of 'y'", "observations are back"]


def test_a_driver_that_falls_silent_is_missed_though_the_other_goes_on(halves: Bench) -> None:
    halves.joints(x=1.0)
    halves.joints(y=1.0)
    for _ in range(20):
        halves.passes(50)
        halves.image()
        halves.joints(x=1.0)
    assert halves.sees() is None
    assert halves.inputs.check().message == "no observation: state: stale: 'y' is 1000.0 ms old, limit 350 ms"
    halves.joints(y=1.0)
    assert halves.sees() == 0


def test_one_drivers_clock_refuses_no_other_drivers_joints(halves: Bench) -> None:
    """One is 80 ms ahead, and one that is an hour ahead is refused alone."""
    for _ in range(5):
        halves.passes(50)
        halves.image()
        halves.joints(ahead_ms=80, x=1.0)
        halves.joints(y=1.0)
        halves.joints(ahead_ms=HOUR_MS, y=9.0)
        assert halves.sees() == 0
    values = halves.inputs.check().values
    assert (values["joint_states refused"], values["state backwards"], values["state future"]) == (5, 0, 5)
    assert halves.epochs == 0


class Counting:
    """Preprocessing that is counted by thread, and is held until released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bench: Bench, lasts_ms: int) -> None:
        self.threads: list[str] = []
        self.free, self.entered = threading.Event(), threading.Semaphore(0)
        self.free.set()
        prepare = Preprocessor.image

        def image(this: Preprocessor, name: str, frame: Any) -> Any:
            self.threads.append(threading.current_thread().name)
            self.entered.release()
            assert self.free.wait(PATIENCE_S)
            bench.mono_ms += lasts_ms
            return prepare(this, name, frame)

        monkeypatch.setattr(Preprocessor, "image", image)


def test_a_picture_is_prepared_when_it_comes_and_a_frame_finds_it_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(monkeypatch, bench, lasts_ms=5)
    bench.joints()
    assert bench.news.acquire(timeout=PATIENCE_S)
    bench.image(value=200)
    assert bench.news.acquire(timeout=PATIENCE_S)  # it is told of when it is ready
    assert counting.threads == ["images"]
    observation = bench.inputs.latch(bench.now_ns())
    assert isinstance(observation, Observation)
    assert counting.threads == ["images"]
    expected = Preprocessor(SPEC)({"top": np.full((4, 6, 3), 200, np.uint8)}, np.array([1.0]))
    np.testing.assert_array_equal(observation.images[0], expected.image)


def test_of_pictures_that_wait_the_newest_is_prepared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch, bench, lasts_ms=5)
    counting.free.clear()
    for value in range(5):
        bench.passes(50)
        bench.image(value=value)
        if value == 0:
            assert counting.entered.acquire(timeout=PATIENCE_S)
    counting.free.set()
    for _ in range(2):
        assert bench.news.acquire(timeout=PATIENCE_S)
    bench.joints()
    observation = bench.inputs.latch(bench.now_ns())
    assert isinstance(observation, Observation)
    assert observation.images[0, 0, 0, 0, 0] == np.float32(4 / 255)
    assert len(counting.threads) == 2


def test_what_is_quick_is_done_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch, bench, lasts_ms=0)
    for _ in range(3):
        bench.passes(50)
        bench.image()
        assert bench.news.acquire(timeout=PATIENCE_S)
    assert counting.threads == ["images", threading.current_thread().name, threading.current_thread().name]


def test_no_picture_is_prepared_that_a_newer_one_replaces_before_the_next_frame(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A camera of 60 Hz before frames of 400 ms: one in twenty-four."""
    counting = Counting(monkeypatch, bench, lasts_ms=0)
    for _ in range(10):
        bench.passes(20)
        bench.image()
        assert bench.news.acquire(timeout=PATIENCE_S)
    before, began_ms = len(counting.threads), bench.mono_ms
    bench.next_frame_ms = began_ms + 400
    for _ in range(20):
        bench.passes(20)
        bench.image()
        assert bench.news.acquire(timeout=PATIENCE_S)
    bench.joints()
    assert len(counting.threads) - before == 2  # at 380 and at 400
    assert bench.sees() == 0
    assert len(counting.threads) - before == 2
    assert bench.inputs.arrivals.period_ns == 20 * MS


def test_bytes_that_are_no_message_are_refused_by_the_name_of_their_topic(bench: Bench) -> None:
    """rclpy drops them unseen, and what it makes of some of them is half a message."""
    bench.image()
    bench.joints()
    bench.callbacks["camera/top/image_raw"](HEADER + b"\xff" * 64)
    bench.callbacks[STATE](HEADER + b"\xff" * 64, {})
    values = bench.inputs.check().values
    assert (values["top refused"], values["joint_states refused"]) == (1, 1)
    assert (values["fault bad_data"], values["fault bad_state"]) == (1, 1)
    assert "68 bytes on /camera/top/image_raw: " in values["top refused_for"]
    assert "68 bytes on /joint_states: " in values["joint_states refused_for"]
    bench.passes(50)
    bench.image()
    bench.joints()
    assert bench.sees() == 0
