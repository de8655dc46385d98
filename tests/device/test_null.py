"""Virtual time: schedules worked out by hand, and the null device's own refusals."""

from __future__ import annotations

import pytest

from auras_ros.clock import VirtualClock
from auras_ros.device import DeviceError, Span, Spans
from auras_ros.device.cpu import CpuDevice
from tests.device.null_device import NullDevice

TIMES_NS = {"look": 30, "think": 50, "act": 5, "blink": 0}


class Board:
    """A null device with every stage of the table on each of two lanes."""

    def __init__(self, durations_ns: dict[str, int] | None = None) -> None:
        self.clock, self.spans, self.ran = VirtualClock(100), Spans(32), list[str]()
        self.device = NullDevice(self.clock, TIMES_NS if durations_ns is None else durations_ns, self.spans)
        self.lanes = {name: self.device.lane(name) for name in ("eye", "mind")}
        self.stages = {
            (lane, name): self.device.capture(name, lambda name=name: self.ran.append(name), self.lanes[lane])
            for lane in self.lanes
            for name in TIMES_NS
        }

    def launch(self, lane: str, stage: str, *after: object) -> object:
        return self.lanes[lane].launch(self.stages[lane, stage], after)  # type: ignore[arg-type]


def test_a_lane_runs_one_after_another() -> None:
    board = Board()
    board.launch("eye", "look")
    board.launch("eye", "act")
    assert board.spans.rows() == [Span("eye", "look", 100, 130), Span("eye", "act", 130, 135)]


def test_lanes_run_side_by_side() -> None:
    board = Board()
    board.launch("eye", "look")
    board.launch("mind", "think")
    assert board.spans.rows() == [Span("eye", "look", 100, 130), Span("mind", "think", 100, 150)]
    assert board.clock.now_ns() == 100


def test_a_launch_starts_at_the_last_of_its_marks() -> None:
    board = Board()
    look, act = board.launch("eye", "look"), board.launch("mind", "act")
    board.launch("mind", "think", act, look)
    assert board.spans.rows()[-1] == Span("mind", "think", 130, 180)


def test_a_launch_never_starts_in_the_past() -> None:
    board = Board()
    early = board.launch("eye", "act")
    board.clock.advance(1000)
    board.launch("eye", "look", early)
    assert board.spans.rows()[-1] == Span("eye", "look", 1100, 1130)


def test_waiting_moves_the_clock_and_only_forward() -> None:
    board = Board()
    look, think = board.launch("eye", "look"), board.launch("mind", "think")
    assert not think.done()
    think.wait()
    assert board.clock.now_ns() == 150
    assert look.done()
    look.wait()
    assert board.clock.now_ns() == 150


def test_offset_minus_one_runs_beside_perception_and_offset_zero_after_it() -> None:
    """Rule 2 of docs/pipeline.md: the frame lasts max(30, 50) with fetch_offset −1 and 30 + 50 with 0."""
    for waits, frame_ns in ((False, 50), (True, 80)):
        board = Board()
        for _ in range(3):
            start_ns = board.clock.now_ns()
            look = board.launch("eye", "look")
            think = board.launch("mind", "think", *([look] if waits else []))
            look.wait()
            think.wait()
            assert board.clock.now_ns() - start_ns == frame_ns


def test_bodies_run_at_once_in_the_order_of_the_launches() -> None:
    board = Board()
    look = board.launch("eye", "look")
    board.launch("mind", "think", look)
    board.launch("eye", "act")
    assert board.ran == ["look", "think", "act"]


def test_a_stage_may_take_no_time() -> None:
    board = Board()
    board.launch("eye", "blink").wait()
    assert board.clock.now_ns() == 100
    assert board.spans.rows() == [Span("eye", "blink", 100, 100)]


def test_durations_are_read_at_each_launch() -> None:
    durations = dict(TIMES_NS)
    board = Board(durations)
    board.launch("eye", "look").wait()
    durations["look"] = 1
    board.launch("eye", "look").wait()
    assert board.clock.now_ns() == 131


def test_what_does_not_run_takes_no_time() -> None:
    board = Board()
    broken = board.device.capture("act", lambda: 1 // 0 and None, board.lanes["eye"])
    failed = board.lanes["eye"].launch(broken)
    after = board.launch("mind", "think", failed)
    with pytest.raises(ZeroDivisionError):
        after.wait()
    assert board.clock.now_ns() == 105
    assert board.ran == []
    assert [row.stage for row in board.spans.rows()] == ["act"]


def test_a_failure_takes_its_time() -> None:
    board = Board()
    mark = board.lanes["eye"].launch(board.device.capture("look", lambda: 1 // 0 and None, board.lanes["eye"]))
    with pytest.raises(ZeroDivisionError):
        mark.wait()
    assert board.clock.now_ns() == 130


@pytest.mark.parametrize(("durations", "said"), [({}, "got None"), ({"stray": -1}, "got -1")])
def test_a_stage_without_a_duration_is_named_at_its_capture(durations: dict[str, int], said: str) -> None:
    device = NullDevice(VirtualClock(), durations)
    with pytest.raises(DeviceError, match=f"stage 'stray': its duration must be given and not negative, {said}"):
        device.capture("stray", lambda: None, device.lane("lane"))


def test_marks_of_real_time_are_refused() -> None:
    real = CpuDevice()
    lane = real.lane("real")
    mark = lane.launch(real.capture("stage", lambda: None, lane))
    with pytest.raises(DeviceError, match="lane 'eye': a launch in virtual time cannot come after a OverMark"):
        Board().launch("eye", "look", mark)
    real.close()
