"""Forwards between a policy's frames, by the engine on a virtual clock: what is known of them, and what runs when.

Guards: a forward whose length is known and that runs into a frame; a gap that is long enough and stays empty; work that
the frames wait for after it has ended, after a failure, or after the engine was closed; a request that waits for ever.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from auras_ros.clock import VirtualClock
from auras_ros.device.reservation import FrameReservation
from auras_ros.engine import simulation
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.engine.scheduler import Dispatch, InterleavedScheduler
from auras_ros.engine.simulation import Arrival, SimulatedForwards, make_simulated

BESIDE = CorunTimes(80.0, 60.0, 20.0, 20.0)
PROFILE = StageProfile("d", "m", 2, 40.0, {32: 10.0, 100: 30.0}, 100, 10.0, 0.5, 0.5, {1: BESIDE}, BESIDE)
OPTIONS = EngineOptions(block=64, kv_mib=4, running=8, waiting=64, prefix_cache=False, image_cache_mib=0)
MS = 1_000_000
FRAME_MS = 45


class Robot:
    """Frames on a grid, and an engine that fills the gaps; one clock for both."""

    def __init__(self, period_ms: int) -> None:
        self.clock, self.period_ns = VirtualClock(), period_ms * MS
        self.reservation = FrameReservation(self.clock)
        self.slot = self.reservation.slot()
        self.forwards = SimulatedForwards(PROFILE, self.clock)
        scheduler = InterleavedScheduler(100, chunked=True)  # one prompt: several would fit in no gap
        self.engine = make_simulated(scheduler, self.forwards, OPTIONS, self.clock, self.reservation)
        self.frames: list[tuple[int, int]] = []

    def ask(self, tokens: int) -> simulation.Served:
        return simulation._submit(self.engine, Arrival(0.0, tokens), len(self.forwards.log), 100, self.clock)

    def run_until_idle(self, patience: int = 400) -> None:
        """Frames from now on, until nothing is asked any more."""
        begin_ns = self.clock.now_ns()
        self.slot.announce(begin_ns, FRAME_MS * MS)
        frame_end_ns: int | None = None
        for _ in range(patience * 20):
            self.engine.step()
            if not self.engine.open:
                return
            ends = [self.forwards.next_end_ns(), begin_ns if frame_end_ns is None else frame_end_ns]
            self.clock.sleep_until_ns(min(each for each in ends if each is not None))
            self.forwards.advance()
            self.engine._drain()  # ends what runs before a frame is asked for
            now_ns = self.clock.now_ns()
            if frame_end_ns is not None and now_ns >= frame_end_ns:
                self.frames.append((begin_ns, now_ns))
                begin_ns += self.period_ns
                frame_end_ns = None
                self.slot.announce(begin_ns, FRAME_MS * MS)
            elif frame_end_ns is None and now_ns >= begin_ns and self.slot.wait_ns() == 0:
                begin_ns, frame_end_ns = now_ns, now_ns + FRAME_MS * MS
        raise AssertionError("requests wait for ever")

    def overlaps(self) -> list[str]:
        """Forwards that ran while a frame did."""
        log = self.forwards.log
        return [
            dispatch.stage
            for dispatch, begin, end in log
            if any(begin < frame_end and end > frame_begin for frame_begin, frame_end in self.frames)
        ]


def test_forwards_of_known_length_run_between_frames_and_fill_the_gaps() -> None:
    robot = Robot(100)  # gaps of 55 ms: a vision forward fits, or five decodes
    for _ in range(3):
        robot.ask(6)
    robot.engine.step()
    while robot.engine.open:  # the lengths are learnt before there are frames
        robot.clock.sleep_until_ns(robot.forwards.next_end_ns() or 0)
        robot.forwards.advance()
        robot.engine.step()
    served = [robot.ask(20) for _ in range(3)]
    known = len(robot.forwards.log)
    robot.run_until_idle()
    assert [len(each.tokens_ns) for each in served] == [20, 20, 20]
    assert len(robot.frames) > 3
    assert robot.overlaps() == []
    assert robot.reservation.outlasted == 0
    gaps = [
        sum(1 for _, begin, _ in robot.forwards.log[known:] if end <= begin < next_begin)
        for (_, end), (next_begin, _) in zip(robot.frames, robot.frames[1:], strict=False)
    ]
    assert max(gaps) >= 4  # decodes of 11 ms
    assert not robot.reservation.running


def test_a_forward_that_no_gap_takes_waits_until_the_frames_end() -> None:
    robot = Robot(80)  # gaps of 35 ms: no vision forward of 40 ms
    robot.ask(1)
    robot.engine.step()
    while robot.engine.open:
        robot.clock.sleep_until_ns(robot.forwards.next_end_ns() or 0)
        robot.forwards.advance()
        robot.engine.step()
    robot.ask(1)
    with pytest.raises(AssertionError, match="wait for ever"):
        robot.run_until_idle(patience=5)
    robot.slot.lift()
    robot.engine.step()
    assert robot.forwards.next_end_ns() is not None


def test_a_forward_that_took_long_once_or_was_looked_at_late_keeps_nothing_out() -> None:
    robot = Robot(100)
    robot.ask(20)
    robot.engine.step()
    steps = 0
    while robot.engine.open:
        robot.clock.sleep_until_ns(robot.forwards.next_end_ns() or 0)
        robot.forwards.advance()
        late_ns = {4: 3_000, 6: 5_000}.get(steps := steps + 1, 0) * MS  # decodes that have ended
        robot.clock.sleep_until_ns(robot.clock.now_ns() + late_ns)
        robot.engine.step()
    gaps = robot.engine._gaps
    decode = Dispatch("decode", (cast(ActiveRequest, None),), (1,))
    assert gaps.expected_ns(decode) == 10 * MS
    robot.reservation.running.clear()
    for taken_ms, expected_ms in ((900, 10), (11, 11), (19, 19), (900, 900)):  # the second one is no outlier any more
        work = gaps.begin(decode)
        assert work
        gaps.ended(decode, taken_ms * MS)
        assert gaps.expected_ns(decode) == expected_ms * MS


def test_forwards_of_another_part_or_image_are_of_another_kind() -> None:
    """Or a large image would start in the gap of a small one, and a forward on few units in that of one on many."""
    gaps = Robot(100).engine._gaps
    images = [SimpleNamespace(tokens=tokens) for tokens in (60, 64, 300)]
    request = cast(ActiveRequest, SimpleNamespace(request=SimpleNamespace(prompt=SimpleNamespace(images=images))))
    small, near, large = (Dispatch("vision", (request,), image=index, split=1) for index in range(3))
    gaps.begin(small)
    gaps.ended(small, 10 * MS)
    gaps.begin(large)
    gaps.ended(large, 50 * MS)
    assert (gaps.expected_ns(small), gaps.expected_ns(large)) == (10 * MS, 50 * MS)
    assert gaps.expected_ns(near) == 50 * MS  # unknown: the longest of the stage
    assert gaps.expected_ns(replace(small, split=2)) == 50 * MS


def test_nothing_is_left_to_wait_for_after_close_or_a_failure() -> None:
    robot = Robot(100)
    robot.ask(3)
    robot.engine.step()
    (forward,) = robot.forwards._running
    assert len(robot.reservation.running) == 1
    forward.future.set_exception(RuntimeError("lost"))
    robot.engine.step()
    assert not robot.reservation.running
    robot.ask(3)
    robot.engine.step()
    robot.forwards._running[-1].future.set_exception(RuntimeError("lost"))
    robot.engine.close()
    assert not robot.reservation.running
