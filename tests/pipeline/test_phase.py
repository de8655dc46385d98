"""Frames in phase with the camera, in virtual time (`in_phase`): the image that a frame latches has just come.

Guards: a grid whose ticks fall before the images (a whole period lost); one that follows what it should not; frames
that are bought with ticks; a lock that is lost for good.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from auras_ros.observation import Arrivals
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.phase import PhaseLock
from tests.pipeline.in_phase import MS, Camera, Played, play

SETTLED_MS = 10_000.0


def p90_ms(played: Played) -> float:
    return float(np.percentile(played.after(SETTLED_MS).waited(), 90)) / MS


def plans() -> list[tuple[float, float, float, float, int]]:
    """(frame period, camera period, jitter, duration, seed): most periods are no divisors of one another."""
    rng, made = random.Random(14), []
    for seed in range(9):
        frame_ms = rng.choice([50.0, 100.0, 333.0, 400.0])
        camera_ms = rng.uniform(0.08, 0.6) * frame_ms
        if seed % 3 == 0:
            camera_ms = frame_ms / rng.randint(2, 9)
        lasts_ms = rng.uniform(0.05, 0.95) * (frame_ms - camera_ms)
        made.append((frame_ms, camera_ms, rng.choice([0.0, 0.02, 0.05, 0.1]) * camera_ms, lasts_ms, seed))
    return made


@pytest.mark.parametrize(("frame_ms", "camera_ms", "jitter_ms", "lasts_ms", "seed"), plans())
def test_an_image_is_no_older_than_a_tenth_of_its_period_when_it_is_latched(
    frame_ms: float, camera_ms: float, jitter_ms: float, lasts_ms: float, seed: int
) -> None:
    """Whatever the phases, and at no cost of frames or ticks."""
    camera = Camera(camera_ms, random.Random(seed).uniform(0, camera_ms), jitter_ms)
    lasts, seconds = [lasts_ms, 0.9 * lasts_ms], SETTLED_MS / 1000 + 60 * frame_ms / 1000
    on = play([camera], frame_ms, lasts, seconds, lock=True, seed=seed)
    off = play([camera], frame_ms, lasts, seconds, lock=False, seed=seed)
    assert p90_ms(on) <= 0.1 * camera_ms
    assert on.skipped <= off.skipped
    assert len(on.starts) >= 0.99 * len(off.starts) - 1


def test_without_the_lock_the_phase_is_what_it_happens_to_be() -> None:
    """The fault that this is for: an image that comes just after the tick is missed by every frame."""
    camera = Camera(100.0, phase_ms=0.0, jitter_ms=2.0)
    late = [p90_ms(play([camera], 400.0, [120.0], 60.0, lock=False, seed=seed)) for seed in range(3)]
    assert max(late) > 90.0
    assert all(p90_ms(play([camera], 400.0, [120.0], 60.0, lock=True, seed=seed)) < 1.0 for seed in range(3))


def test_a_frame_that_has_no_time_to_wait_costs_no_tick_and_the_grid_still_finds_the_images() -> None:
    """Frames take 385 of 400 ms, the camera's clock is slower than ours: without the lock all phases come by."""
    camera = Camera(100.02, phase_ms=30.0, jitter_ms=1.0)
    on = play([camera], 400.0, [380.0, 385.0], 120.0, lock=True)
    off = play([camera], 400.0, [380.0, 385.0], 120.0, lock=False)
    assert (on.skipped, off.skipped) == (0, 0)
    assert len(on.starts) >= len(off.starts) - 1
    assert p90_ms(on) <= 10.0 < 40.0 < p90_ms(off)


@pytest.mark.parametrize("lasts_ms", [120.0, 385.0])
def test_a_camera_that_stops_and_comes_back_in_another_phase_is_found_again(lasts_ms: float) -> None:
    camera = Camera(100.0, 30.0, 2.0, gone=(20_000.0, 23_000.0), back_ms=57.0)
    played = play([camera], 400.0, [lasts_ms], 60.0, lock=True)
    assert played.skipped == 0
    waited = played.after(23_000.0).waited()
    assert waited[0] < 5 * MS  # the first frame that runs again starts with the first image
    assert float(np.percentile(waited, 90)) <= 10 * MS


def test_a_camera_that_loses_images_now_and_then_keeps_the_lock() -> None:
    class Losing(Camera):
        def images(self, name: str, seed: int):  # type: ignore[no-untyped-def]
            rng = random.Random(seed)
            return (image for image in super().images(name, seed) if rng.random() > 0.05)

    played = play([Losing(50.0, 20.0, 1.0)], 400.0, [150.0], 120.0, lock=True)
    assert played.skipped == 0
    assert p90_ms(played) <= 5.0


@pytest.mark.parametrize(
    ("cameras", "age_ms"),
    [
        ([Camera(100.0, 0.0, 0.5), Camera(100.0, 0.0, 0.5)], 8.0),  # of one instant
        ([Camera(100.0, 40.0, 0.5), Camera(100.0, 0.0, 0.5)], 48.0),  # 40 ms apart: not 60
        ([Camera(100.0, 0.0, 0.5), Camera(100.0, 40.0, 0.5)], 48.0),
        ([Camera(33.3, 3.0), Camera(100.0, 0.0)], 40.0),  # the slower one leads
        ([Camera(50.0, 0.0, 1.0), Camera(50.0, 1.0, 1.0), Camera(25.0, 7.0)], 27.0),
    ],
)
def test_of_several_cameras_the_set_is_what_frames_wait_for(cameras: list[Camera], age_ms: float) -> None:
    played = play(cameras, 400.0, [120.0], 60.0, lock=True).after(SETTLED_MS)
    slowest_ms = max(camera.period_ms for camera in cameras)
    assert float(np.percentile(played.waited(), 90)) / MS <= 0.1 * slowest_ms
    ages = [start - taken for start, taken in zip(played.starts, played.taken, strict=True)]
    assert float(np.percentile(ages, 90)) / MS <= age_ms


def test_images_without_a_pace_change_nothing() -> None:
    rng = random.Random(3)
    arrivals, now_ns = Arrivals(["top"]), 0
    for _ in range(200):
        now_ns += round(rng.choice([5, 30, 90, 170, 400]) * MS)
        arrivals.came("top", now_ns)
    assert (arrivals.period_ns, arrivals.due_ns(now_ns + MS)) == (None, None)
    clock = FrameClock(400 * MS, patient=True)
    phase = PhaseLock(arrivals, [clock])
    clock.started(now_ns)
    clock.ended(now_ns + 100 * MS)
    tick_ns = clock.next_start_ns(now_ns + 100 * MS)
    assert phase.wait_ns(tick_ns) == 0
    clock.started(tick_ns)
    phase.started(tick_ns, tick_ns)
    assert clock.next_start_ns(tick_ns + MS) == tick_ns + 400 * MS


def test_the_grid_moves_by_small_steps_and_all_clocks_alike() -> None:
    """From the worst phase: a fiftieth of the camera's period a frame, and dec's generation goes along."""
    arrivals = Arrivals(["top"])
    clocks = [FrameClock(400 * MS, patient=True), FrameClock(400 * MS, patient=True)]
    phase = PhaseLock(arrivals, clocks)
    for clock, began_ns in zip(clocks, (50 * MS, 70 * MS), strict=True):
        clock.started(began_ns)
        clock.ended(began_ns + 390 * MS)
    moved = []
    for frame in range(1, 40):
        for image in range(4):
            arrivals.came("top", (400 * frame + 100 * image - 400) * MS)
        now_ns = (400 * frame - 20) * MS
        before = [clock.next_start_ns(now_ns) for clock in clocks]
        clocks[0].started(before[0])
        clocks[0].ended(before[0] + 390 * MS)
        phase.started(before[0], before[0])
        clocks[1].started(before[1])
        after = [clock.next_start_ns(now_ns) - 400 * MS for clock in clocks]
        moved.append([late - early for early, late in zip(before, after, strict=True)])
    assert max(abs(step) for steps in moved for step in steps) <= 2 * MS
    assert all(first == second for first, second in moved)
    assert abs(sum(step for step, _ in moved)) / MS == pytest.approx(50.0, abs=1.5)


def test_it_waits_only_for_what_comes_in_time() -> None:
    arrivals, clock = Arrivals(["top"]), FrameClock(400 * MS, patient=True)
    phase = PhaseLock(arrivals, [clock])
    for image in range(10):
        arrivals.came("top", (100 * image + 30) * MS)
    clock.started(600 * MS)
    clock.ended(700 * MS)  # 300 ms are left
    assert clock.next_start_ns(900 * MS) == 1000 * MS
    assert phase.wait_ns(1000 * MS) == 80 * MS  # until half a period after the image is due
    assert phase.wait_ns(1081 * MS) == 99 * MS  # it did not come: the next one
    assert phase.wait_ns(1181 * MS) == 0
    clock.started(1000 * MS)
    clock.ended(1375 * MS)  # 25 ms are left, less what the grid may move
    assert clock.next_start_ns(1380 * MS) == 1400 * MS
    arrivals.came("top", 1330 * MS)
    assert phase.wait_ns(1400 * MS) == 0


def test_a_tick_that_had_nothing_to_do_stays_open_for_the_patient_alone() -> None:
    for patient, start_ms in ((True, 400), (False, 800)):
        clock = FrameClock(400 * MS, patient=patient)
        clock.started(0)
        clock.ended(100 * MS)
        assert clock.next_start_ns(390 * MS) == 400 * MS
        clock.idle()
        assert clock.next_start_ns(410 * MS) == start_ms * MS
        clock.started(max(410, start_ms) * MS)
        assert clock.skipped == 0
        assert clock.next_start_ns(820 * MS) == 1200 * MS


def test_the_earliest_start_is_the_next_tick_or_the_end_of_what_runs() -> None:
    clock = FrameClock(100 * MS)
    assert clock.earliest_ns() == 0
    clock.started(0)
    assert clock.earliest_ns() == 100 * MS
    clock.ended(130 * MS)
    clock.started(200 * MS)
    assert clock.earliest_ns() == 330 * MS
    free = FrameClock(0)
    free.started(0)
    free.ended(70 * MS)
    assert free.earliest_ns() == 0
    free.started(80 * MS)
    assert free.earliest_ns() == 150 * MS


@pytest.mark.parametrize("lasts_ms", [[150.0, 250.0, 350.0, 410.0], [380.0, 390.0, 410.0, 420.0], [500.0, 550.0]])
def test_frames_that_are_long_or_of_any_length_lose_no_tick_to_the_wait(lasts_ms: list[float]) -> None:
    """Some overrun the grid whatever is done: with the lock no more of them do."""
    for phase_ms in (3.0, 70.0):
        camera = Camera(100.0, phase_ms, jitter_ms=2.0)
        on = play([camera], 400.0, lasts_ms, 60.0, lock=True)
        off = play([camera], 400.0, lasts_ms, 60.0, lock=False)
        assert on.skipped <= off.skipped + 1
        assert len(on.starts) >= len(off.starts) - 2
        assert p90_ms(on) <= 10.0
