"""Frames of a live executor, announced in a reservation.

Guards: a frame that other work does not know of; a reservation that stays when no frame comes any more; work that
breaks the age contract or costs a tick.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from auras_ros.clock import SchedulerClock, VirtualClock
from auras_ros.device.reservation import FrameReservation, FrameSlot
from auras_ros.pipeline import live as live_module
from auras_ros.pipeline.announcing import FrameAnnouncer, longest_gap_ns
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.live import Frame, Live
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched
from tests.pipeline.real_time import PATIENCE_S, PLANS, World, executor
from tests.pipeline.test_live import LOOK_NS, Creeping, Lasting

MS = 1_000_000


class RecordedSlot(FrameSlot):
    """What was announced, and since when a frame is due."""

    def __init__(self, reservation: FrameReservation) -> None:
        super().__init__(reservation)
        self.announced: list[tuple[int, int, int | None]] = []
        self.entered = threading.Event()

    def announce(self, begin_ns: int, duration_ns: int, latest_ns: int | None = None) -> None:
        self.announced.append((begin_ns, duration_ns, latest_ns))
        super().announce(begin_ns, duration_ns, latest_ns)

    def enter(self) -> None:
        self.entered.set()
        super().enter()


class Recorded(FrameReservation):
    def __init__(self, clock: SchedulerClock | None = None) -> None:
        super().__init__(clock)
        self.recorded: list[RecordedSlot] = []

    def slot(self) -> FrameSlot:
        self.recorded.append(RecordedSlot(self))
        return self.recorded[-1]


def test_frames_start_when_they_were_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a grid of 1 ms, with overruns: no work fits while one runs, and the next one is at the next tick."""
    clock, world, frames = Creeping(), World(), list[Frame]()
    monkeypatch.setattr(live_module, "MonotonicClock", lambda: clock)
    reservation = Recorded(clock)
    made = executor("quick,frame_period_ms=1")
    lengths: Iterator[int] = chain((round(each * MS) for each in (0.2, 1.5, 0.3, 2.6, 0.7)), repeat(MS // 5))
    made.workers = (Lasting(made.workers[0], clock, lengths),)

    def observe(frame: Frame) -> None:
        frames.append(frame)
        assert not reservation.fits(clock.now_ns(), 0)

    live = Live(made, world.latch, world.take, observer=observe)
    live.announce_to(reservation)
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= 8)
    finally:
        live.halt()
        made.close()
    (slot,) = reservation.recorded
    assert reservation.slots == set()
    announced = slot.announced[: len(frames)]
    late = [frame.began_ns - begin for frame, (begin, _, _) in zip(frames, announced, strict=True)]
    assert all(0 <= each <= 3 * LOOK_NS for each in late), late
    lasted = [frame.ended_ns - frame.began_ns for frame in frames]
    for number, (_, duration, latest) in enumerate(announced[1:], 1):
        assert latest is None
        assert max(lasted[:number]) <= duration <= max(lasted[:number]) + 4 * LOOK_NS


def test_with_an_age_limit_a_frame_may_be_later_but_costs_no_tick() -> None:
    clock, world = VirtualClock(), World()
    reservation = Recorded(clock)
    made = executor("quick")
    seen = world.latch(7 * MS)
    assert seen is not None
    emission = made.frame(seen, 7 * MS)
    made.close()
    frames = FrameClock(100 * MS)
    announcer = FrameAnnouncer(reservation, frames, 30 * MS, 150 * MS)
    announcer.next(0)
    announcer.emitted(emission)
    announcer.next(100 * MS)
    announcer.emitted(None)
    announcer.next(50 * MS)
    assert reservation.recorded[0].announced == [
        (0, 30 * MS, None),
        (100 * MS, 30 * MS, 157 * MS),
        (50 * MS, 30 * MS, 150 * MS),
    ]


def test_a_frame_that_waits_for_its_image_stays_announced_until_it_gives_up() -> None:
    clock = VirtualClock(5 * MS)
    reservation = FrameReservation(clock)
    announcer = FrameAnnouncer(reservation, FrameClock(100 * MS), 30 * MS, 0)
    announcer.waits(5 * MS, 20 * MS)
    assert not reservation.fits(5 * MS, 1)
    assert reservation.free_at_ns() == 55 * MS
    announcer.lift()
    assert reservation.fits(5 * MS, 1000 * MS)


@pytest.mark.parametrize("text", PLANS)
def test_where_there_is_nothing_to_do_work_of_any_length_runs(text: str) -> None:
    reservation, lifted = Recorded(), threading.Event()

    def told() -> None:
        if reservation.recorded and all(slot.entered.is_set() for slot in reservation.recorded):
            work = reservation.start(2**60)
            if work is not None:
                work.end()
                lifted.set()

    reservation.listen(told)
    live = Live(executor(text), lambda now_ns: None, lambda emission: None)
    live.announce_to(reservation)
    live.start()
    try:
        assert lifted.wait(PATIENCE_S)
    finally:
        live.halt()
        live.executor.close()


def test_a_frame_that_nobody_expected_waits_for_the_work_that_runs() -> None:
    reservation, world, looks = Recorded(), World(), list[int]()

    def latch(now_ns: int) -> Latched | None:
        looks.append(now_ns)
        return world.latch(now_ns)

    live = Live(executor("quick"), latch, world.take)
    live.announce_to(reservation)
    work = reservation.start(2**60)
    assert work is not None
    live.start()
    try:
        assert reservation.recorded[0].entered.wait(PATIENCE_S)
        assert looks == []
        work.end()
        world.until(lambda: len(world.emissions) >= 3)
    finally:
        live.halt()
        live.executor.close()
    assert reservation.outlasted == 0


def test_a_worker_that_fails_leaves_no_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    reservation, world, failing = FrameReservation(), World(), executor("quick")
    monkeypatch.setattr(failing.workers[0], "run", lambda: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    live = Live(failing, world.latch, world.take)
    live.announce_to(reservation)
    live.start()
    for thread in live._threads:
        thread.join(PATIENCE_S)
    assert live.ended()
    assert reservation.slots == set()
    failing.close()


@pytest.mark.parametrize(
    ("text", "max_age_ms", "gap_ms"),
    [
        ("quick", 0, 0),  # back to back
        ("quick", 100, 40),  # 60 ms old
        ("quick,mode=par,concurrency=2,frame_period_ms=100", 0, 0),
        ("quick,frame_period_ms=20", 0, 0),  # frames of 30 ms
        ("quick,frame_period_ms=100", 0, 70),
        ("quick,frame_period_ms=100", 100, 70),  # too old anyway: its actions get 130 ms old
        ("quick,frame_period_ms=100", 150, 90),
        ("quick,frame_period_ms=100", 1000, 140),
        ("quick,mode=auras,fetch_offset=-1,frame_period_ms=100", 250, 90),  # 230 ms old
    ],
)
def test_the_longest_gap_follows_from_the_plan(text: str, max_age_ms: int, gap_ms: int) -> None:
    assert longest_gap_ns(Plan.parse(text), 30 * MS, max_age_ms * MS) == gap_ms * MS
