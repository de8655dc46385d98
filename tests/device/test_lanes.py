"""What every device promises (auras_ros/device/lane.py), on each of them.

Guards: launches that overtake each other; a launch that does not wait for its marks; a failure that is lost, stops
its lane, or runs what came after it; a stage on a lane that it was not captured for; memory that grows by the launch.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from itertools import pairwise

import pytest
import torch

from auras_ros.device import DeviceError, Mark, cannot_capture, in_words
from auras_ros.device.uncaptured import listening
from tests.device.conftest import Rig

HOST = ["inline", "thread", "null"]  # stages are host code, so a test can look into them
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)

on_host = pytest.mark.parametrize("rig", HOST, indirect=True)
everywhere = pytest.mark.parametrize("rig", [*HOST, CUDA], indirect=True)


@everywhere
def test_lanes_compute_what_plain_calls_compute(rig: Rig) -> None:
    """Two lanes that feed each other for twenty rounds, against the same arithmetic in one thread."""
    torch.manual_seed(0)
    weight, left, right = (torch.randn(*shape, dtype=torch.float64) / 5 for shape in ((24, 24), (24,), (24,)))
    w, a, b = (torch.zeros_like(x).to(rig.device.tensors) for x in (weight, left, right))
    one, two = rig.lane("one"), rig.lane("two")
    advance = rig.stage(one, "advance", lambda: a.copy_(torch.tanh(w @ a + b)))
    answer = rig.stage(two, "answer", lambda: b.copy_(torch.sin(w @ (a - b))))
    for buffer, value in ((w, weight), (a, left), (b, right)):
        buffer.copy_(value)
    marks: list[Mark] = []
    for _ in range(20):
        left = torch.tanh(weight @ left + right)
        marks.append(advance(*marks[-1:]))
        right = torch.sin(weight @ (left - right))
        marks.append(answer(*marks[-1:]))
    marks[-1].wait()
    torch.testing.assert_close(a.cpu(), left)
    torch.testing.assert_close(b.cpu(), right)


@everywhere
def test_a_launch_sees_what_its_thread_did_before(rig: Rig) -> None:
    value, seen = (torch.zeros(200_000, device=rig.device.tensors) for _ in range(2))
    take = rig.stage(rig.lane("lane"), "take", lambda: seen.copy_(value * 2))
    for number in (3.0, 5.0, 7.0):
        value.fill_(number)
        take().wait()
        assert seen.eq(2 * number).all()


@everywhere
def test_every_launch_leaves_a_span(rig: Rig) -> None:
    total = torch.zeros(2, device=rig.device.tensors)
    lane = rig.lane("lane")
    stages = [rig.stage(lane, name, lambda: total.add_(1)) for name in ("a", "b")]
    for stage in (*stages, stages[0]):
        stage().wait()
    rig.device.close()
    rows = rig.spans.rows()
    assert [(row.lane, row.stage) for row in rows] == [("lane", "a"), ("lane", "b"), ("lane", "a")]
    assert all(row.start_ns <= row.end_ns for row in rows)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(rows))


@everywhere
def test_a_stage_belongs_to_its_lane(rig: Rig) -> None:
    """A graph captured for one stream must not replay on another: the plain-call twins say so too."""
    one, two = rig.lane("one"), rig.lane("two")
    stage = rig.device.capture("walk", lambda: None, one)
    with pytest.raises(DeviceError, match="stage 'walk' was not captured for lane 'two'"):
        two.launch(stage)


@everywhere
def test_a_lane_belongs_to_its_device(rig: Rig) -> None:
    other = Rig(rig.kind)
    rig.lane("theirs")  # a name is not enough
    with pytest.raises(DeviceError, match="stage 'walk': lane 'theirs' is not one of this device's open lanes"):
        rig.device.capture("walk", lambda: None, other.lane("theirs"))
    other.device.close()


@everywhere
def test_a_closed_device_takes_nothing_and_closes_twice(rig: Rig) -> None:
    lane = rig.lane("lane")
    stage = rig.device.capture("walk", lambda: None, lane)
    rig.device.close()
    with pytest.raises(DeviceError, match=r"'walk'.*lane 'lane' is"):
        lane.launch(stage)
    with pytest.raises(DeviceError, match="stage 'talk': lane 'lane' is not one of this device's open lanes"):
        rig.device.capture("talk", lambda: None, lane)
    with pytest.raises(DeviceError, match="lane 'more': the device is closed"):
        rig.lane("more")
    rig.device.close()


@everywhere
def test_marks_stay_true(rig: Rig) -> None:
    count = torch.zeros(1, device=rig.device.tensors)
    step = rig.stage(rig.lane("lane"), "step", lambda: count.add_(1))
    count.zero_()
    marks = [step() for _ in range(200)]
    marks[-1].wait()
    assert all(mark.done() for mark in marks)
    for mark in marks:
        mark.wait()
    assert count.item() == 200


@on_host
def test_stages_on_a_lane_run_in_the_order_of_their_launches(rig: Rig) -> None:
    seen: list[int] = []
    lane = rig.lane("lane")
    stages = [rig.stage(lane, str(k), lambda k=k: seen.append(k)) for k in range(50)]
    marks = [stage() for stage in stages]
    marks[-1].wait()
    assert seen == list(range(50))
    assert all(mark.done() for mark in marks)


@on_host
def test_stages_run_without_autograd(rig: Rig) -> None:
    weight = torch.ones(2, requires_grad=True)
    seen: list[bool] = []
    look = rig.stage(rig.lane("lane"), "look", lambda: seen.append((weight * 2).requires_grad))
    look().wait()
    assert seen == [False]
    assert torch.is_grad_enabled()


@on_host
def test_capturing_leaves_the_buffers_alone(rig: Rig) -> None:
    count = torch.zeros(1)
    rig.stage(rig.lane("lane"), "step", lambda: count.add_(1))
    assert count.item() == 0


def break_down() -> None:
    raise KeyError("wheel")


@on_host
def test_a_failure_reaches_who_waits_and_the_lane_goes_on(rig: Rig) -> None:
    seen: list[str] = []
    lane = rig.lane("lane")
    broken = rig.stage(lane, "broken", break_down)()
    well = rig.stage(lane, "well", lambda: seen.append("well"))()
    for _ in range(2):  # every waiter gets it
        with pytest.raises(KeyError, match="wheel"):
            broken.wait()
    well.wait()
    assert broken.done()
    assert seen == ["well"]


@on_host
def test_what_comes_after_a_failure_does_not_run_and_fails_alike(rig: Rig) -> None:
    seen: list[str] = []
    one, two, three = (rig.lane(name) for name in ("one", "two", "three"))
    broken = rig.stage(one, "broken", break_down)()
    second = rig.stage(two, "second", lambda: seen.append("second"))(broken)
    third = rig.stage(three, "third", lambda: seen.append("third"))(second)
    with pytest.raises(KeyError, match="wheel"):
        third.wait()
    with pytest.raises(KeyError, match="wheel"):
        second.wait()
    assert seen == []
    rig.device.close()  # somebody has waited: nothing is left to say


@on_host
def test_waiting_again_and_again_does_not_lengthen_the_traceback(rig: Rig) -> None:
    mark = rig.stage(rig.lane("lane"), "broken", break_down)()
    lengths = []
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            mark.wait()
        lengths.append(len(caught.traceback))
    assert len(set(lengths)) == 1


@on_host
def test_close_tells_of_failures_that_nobody_waited_for(rig: Rig) -> None:
    lane = rig.lane("lane")
    first, second = rig.stage(lane, "first", break_down), rig.stage(lane, "second", break_down)
    seen, _, _ = first(), second(), first()
    with pytest.raises(KeyError):
        seen.wait()
    with pytest.raises(DeviceError, match="nobody waited for failed stages: 'second', 'first'") as caught:
        rig.device.close()
    assert isinstance(caught.value.__cause__, KeyError)


@on_host
def test_failures_that_nobody_waits_for_are_counted_not_collected(rig: Rig) -> None:
    step = rig.stage(rig.lane("lane"), "step", break_down)
    for _ in range(40):
        step()
    with pytest.raises(DeviceError, match="nobody waited for failed stages: 'step' and 24 more"):
        rig.device.close()


@on_host
def test_a_thousand_launches_grow_no_memory(rig: Rig) -> None:
    """Two lanes, each launch after the other lane's last: marks that kept what they came after would all be alive."""
    value = [0.0]
    one, two = rig.lane("one"), rig.lane("two")
    left, right = (rig.stage(lane, lane.name, lambda: value.__setitem__(0, value[0] + 1.0)) for lane in (one, two))
    mark = left()

    def rounds(count: int) -> None:
        nonlocal mark
        for _ in range(count):
            mark = right(left(mark))
            mark.wait()

    rounds(100)
    gc.collect()
    tracemalloc.start()
    try:
        rounds(20)
        before, _ = tracemalloc.get_traced_memory()
        rounds(500)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value[0] == 1 + 2 * 620
    assert after - before < 20_000, f"{after - before} bytes over 1000 launches"  # a mark is more than 50 bytes


@everywhere
def test_a_stage_says_whether_it_is_captured(rig: Rig) -> None:
    """On a host that is known once it has run."""
    total = torch.zeros(1, device=rig.device.tensors)

    def body() -> None:
        cannot_capture("it moves house")
        total.add_(1)

    lane = rig.lane("lane")
    moves, stays = rig.device.capture("moves", body, lane), rig.device.capture("stays", lambda: None, lane)
    total.zero_()
    for _ in range(2):
        for stage in (moves, stays):
            lane.launch(stage).wait()
    assert total.item() == 2
    assert (moves.captured, stays.captured) == (False, True)
    assert rig.device.uncaptured == {"moves": ("it moves house",)}


def test_what_is_said_outside_of_a_stage_is_not_heard_and_threads_hear_their_own() -> None:
    cannot_capture("nobody listens")
    with listening() as heard:
        other = threading.Thread(target=cannot_capture, args=("another thread",))
        other.start()
        other.join()
        with listening() as inner:
            cannot_capture("inner")
        cannot_capture("outer")
        cannot_capture("outer")
    assert list(heard) == ["outer"]
    assert list(inner) == ["inner"]
    assert in_words({"one": ("a", "b", "c"), "two": ("a",)}) == "one: a, and 2 more; two: a"
    assert in_words({}) == ""
