"""Frames and other work on the same units, in virtual time and in real threads.

Guards: work that runs into a frame; a frame that starts late because of work; work that never runs though there is
time, or after the frames have stopped; a frame that waits for work that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.clock import VirtualClock
from auras_ros.device import DeviceError
from auras_ros.device.reservation import FillingWork, FrameReservation, FrameSlot, check_gap

PATIENCE_S = 30.0
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Planned:
    """A frame as it is announced and as it comes: after `gap`, `late` after its announced begin (None: never), lasting
    `takes` where `duration` was announced, in time if it ends `slack` later than it could."""

    gap: int
    duration: int
    takes: int
    slack: int | None
    late: int | None


FRAMES = st.builds(
    Planned,
    gap=st.integers(0, 30),
    duration=st.integers(1, 12),
    takes=st.integers(1, 15),
    slack=st.none() | st.integers(-5, 25),
    late=st.none() | st.integers(0, 15),
)


@dataclass
class FrameThread:
    """One thread's frames, one after another, looked at once for each ns."""

    slot: FrameSlot
    frames: Iterator[Planned]
    running: bool = False
    lifted: bool = False
    latest_start: int = 0  # of the announced frame
    given_up: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)  # (actual, latest) of frames that waited in time
    _comes: int | None = None
    _ends: int = 0
    _waits: bool = False
    _planned: Planned | None = None

    def look(self, now: int, work: FillingWork | None) -> None:
        if self.running and now >= self._ends:
            self.running = False
            self._announce(now, work)
        elif self._planned is None or (self._comes is None and now >= self.given_up + 5):
            self._announce(now, work)
        if not self.running and self._comes is not None and now >= self._comes:
            if not self._waits:
                self._waits = True
                in_time = now < self.given_up or now <= self.latest_start
                self.latest_start = max(self.latest_start, now)
                if work is not None and not (self._in_time and in_time):  # it began before it could know
                    self.latest_start = max(self.latest_start, work.ends_ns)
            if self.slot.wait_ns() == 0:
                assert self._planned is not None
                self.starts.append((now, self.latest_start))
                self.running, self._ends = True, now + self._planned.takes

    def _announce(self, now: int, work: FillingWork | None) -> None:
        self._planned = planned = next(self.frames, None)
        self._waits = False
        if planned is None:
            self.slot.lift()
            self.lifted, self._comes, self._planned = True, None, Planned(0, 1, 1, None, None)
            self.given_up = 10**9
            return
        begin = now + planned.gap
        latest = None if planned.slack is None else begin + planned.duration + planned.slack
        self.slot.announce(begin, planned.duration, latest)
        self.latest_start = begin + max(0, planned.slack or 0)
        self.given_up = self.latest_start + planned.duration
        self._in_time = work is None or work.ends_ns <= self.latest_start
        self._comes = None if planned.late is None else begin + planned.late

    def leaves(self, now: int, duration: int) -> bool:
        """Whether this thread leaves time for work of this length, by what it has announced."""
        if self.running or self._waits:
            return False
        return self.lifted or now + duration <= self.latest_start or now >= self.given_up


@given(st.lists(st.lists(FRAMES, max_size=6), min_size=1, max_size=2), st.lists(st.integers(1, 40), min_size=1))
def test_work_never_overlaps_a_frame_and_never_makes_it_late(threads: list[list[Planned]], lengths: list[int]) -> None:
    """Each ns the frames' threads are looked at first, then the work: it starts whenever it fits, and ends in time."""
    clock = VirtualClock()
    reservation = FrameReservation(clock)
    frames = [FrameThread(reservation.slot(), iter(planned)) for planned in threads]
    work: FillingWork | None = None
    done = 0
    while not (all(each.lifted for each in frames) and done >= len(lengths)):
        now = clock.now_ns()
        if work is not None and now >= work.ends_ns:
            work.end()
            work, done = None, done + 1
        for each in frames:
            each.look(now, work)
        if work is None:
            length = lengths[done % len(lengths)]
            leaves = all(each.leaves(now, length) for each in frames)
            assert reservation.fits(now, length) is leaves
            work = reservation.start(length)
            assert (work is not None) is leaves
        assert work is None or not any(each.running for each in frames)
        clock.advance(1)
        assert now < 10_000, "the work stands still"
    assert reservation.outlasted == 0
    assert all(start <= latest for each in frames for start, latest in each.starts)


def test_work_that_outlasts_what_it_stated_is_not_waited_for() -> None:
    clock = VirtualClock()
    reservation = FrameReservation(clock)
    slot = reservation.slot()
    slot.announce(100, 20, latest_ns=150)
    work = reservation.start(50)
    assert work is not None
    clock.advance(100)
    assert slot.wait_ns() == 30  # to the latest start
    clock.advance(30)
    slot.enter()
    assert reservation.outlasted == 1
    work.end()
    slot.announce(200, 20)
    assert reservation.start(50) is not None


def test_while_a_frame_runs_nothing_starts_however_long_it_overruns() -> None:
    clock = VirtualClock()
    reservation = FrameReservation(clock)
    slot = reservation.slot()
    slot.announce(10, 5)
    clock.advance(10)
    slot.enter()
    for _ in range(3):
        assert not reservation.fits(clock.now_ns(), 0)
        assert reservation.free_at_ns() is None
        clock.advance(100)
    slot.announce(400, 5)
    assert reservation.fits(clock.now_ns(), 90)
    assert not reservation.fits(clock.now_ns(), 91)
    slot.lift()
    slot.enter()  # one that was not announced
    assert not reservation.fits(clock.now_ns(), 0)


def test_a_frame_that_does_not_come_is_given_up_at_the_end_of_its_time() -> None:
    clock = VirtualClock()
    reservation = FrameReservation(clock)
    reservation.slot().announce(10, 5, latest_ns=40)
    assert reservation.free_at_ns() == 40
    clock.advance(39)
    assert reservation.start(1000) is None
    clock.advance(1)
    assert reservation.free_at_ns() is None
    assert reservation.start(1000) is not None


def test_listeners_are_told_when_frames_end_and_stop() -> None:
    reservation, told = FrameReservation(VirtualClock()), list[bool]()
    reservation.listen(lambda: told.append(reservation.fits(0, 50)))
    slot = reservation.slot()
    slot.announce(10, 5)
    slot.enter()
    slot.announce(60, 5)
    slot.announce(20, 5)
    slot.lift()
    assert told == [False, True, False, True]


def test_frames_and_work_of_several_threads_never_overlap() -> None:
    """Frames come before they had to, and work ends before it had to: so whoever waits, waits for an event."""
    reservation, guard = FrameReservation(), threading.Lock()
    news, worked, over = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    reservation.listen(lambda: news.release(2))
    state, seen = {"frames": 0, "work": 0}, {"frames": 0, "work": 0}
    wrong: list[dict[str, int]] = []

    def enter(kind: str, by: int) -> None:
        with guard:
            state[kind] += by
            seen[kind] += max(by, 0)
            if state["frames"] and state["work"]:
                wrong.append(dict(state))

    def fill() -> None:
        while not over.is_set():
            work = reservation.start(60 * SECOND)
            if work is None:
                news.acquire()
                continue
            enter("work", 1)
            enter("work", -1)
            work.end()
            worked.release()

    def run(slot: FrameSlot) -> None:
        for _ in range(200):
            slot.announce(2**62, SECOND)
            if slot is first:
                assert worked.acquire(timeout=PATIENCE_S)
            slot.enter()
            enter("frames", 1)
            enter("frames", -1)
        slot.lift()

    first = reservation.slot()
    fillers = [threading.Thread(target=fill, daemon=True) for _ in range(2)]
    runners = [threading.Thread(target=run, args=(slot,), daemon=True) for slot in (first, reservation.slot())]
    for thread in [*fillers, *runners]:
        thread.start()
    for thread in runners:
        thread.join(PATIENCE_S)
    over.set()
    news.release(2)
    for thread in fillers:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in [*fillers, *runners])
    assert wrong == []
    assert seen["frames"] == 400
    assert seen["work"] >= 200
    assert reservation.outlasted == 0


def test_a_forward_that_no_gap_takes_is_refused_by_name() -> None:
    check_gap(30_000_000, {"decode": 5_000_000, "vision": 30_000_000})
    with pytest.raises(DeviceError, match=r"gap of 30.0 ms is shorter than a vision forward of 31.0 ms"):
        check_gap(30_000_000, {"decode": 5_000_000, "vision": 31_000_000})
