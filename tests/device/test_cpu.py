"""Thread lanes: threads on cores of their own, side by side, with their own number of intra-op threads.

Guards: lanes that take turns; a queue that grows; a lane on cores that it was not given; a number of threads that
leaks into other threads; a thread that outlives its device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from auras_ros.device import DeviceError, Lane, Mark
from auras_ros.device import thread_lane as thread_lane_module
from auras_ros.device.cores import checked
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.failure import StageFailures
from auras_ros.device.plain import PlainStage
from auras_ros.device.thread_lane import ThreadLane

WAIT_S = 30.0  # no event of these tests is waited for that long unless it never comes
HERE = sorted(os.sched_getaffinity(0))

two_cores = pytest.mark.skipif(len(HERE) < 2, reason="needs two cores")


def launch(device: CpuDevice, lane: Lane, body: Callable[[], object], *after: Mark, name: str = "stage") -> Mark:
    return lane.launch(device.capture(name, body, lane), after)  # type: ignore[arg-type]


def reach(event: threading.Event) -> None:
    assert event.wait(WAIT_S), "the event never came"


def test_lanes_run_side_by_side(device: CpuDevice) -> None:
    """Both stages must be running for either to end."""
    meet = threading.Barrier(2, timeout=WAIT_S)
    lanes = [device.lane(name, threads=1) for name in ("one", "two")]
    for mark in [launch(device, lane, meet.wait) for lane in lanes]:
        mark.wait()


def test_the_launching_thread_goes_on(device: CpuDevice) -> None:
    gate = threading.Event()
    mark = launch(device, device.lane("lane", threads=1), lambda: reach(gate))
    assert not mark.done()
    gate.set()
    mark.wait()
    assert mark.done()


def test_a_launch_waits_for_the_marks_of_other_lanes(device: CpuDevice) -> None:
    """The third lane's stage is at the head of an idle lane while the stages that it comes after are still held."""
    seen: list[str] = []
    gates = {name: threading.Event() for name in ("one", "two")}
    marks = [
        launch(device, device.lane(name, threads=1), lambda name=name: (reach(gates[name]), seen.append(name)))
        for name in gates
    ]
    last = launch(device, device.lane("three", threads=1), lambda: seen.append("three"), *marks)
    for name, mark in zip(gates, marks, strict=True):
        assert not last.done()
        gates[name].set()
        mark.wait()
    last.wait()
    assert seen == ["one", "two", "three"]


def test_an_inline_launch_waits_for_a_thread_lanes_mark(device: CpuDevice) -> None:
    seen: list[str] = []
    mark = launch(device, device.lane("thread", threads=1), lambda: seen.append("thread"))
    launch(device, device.lane("inline"), lambda: seen.append("inline"), mark)
    assert seen == ["thread", "inline"]


def test_an_inline_stage_runs_in_the_thread_that_launches_it(device: CpuDevice) -> None:
    seen: list[int] = []
    lane = device.lane("lane")
    mark = launch(device, lane, lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]
    assert mark.done()


def test_an_interrupt_is_not_a_stages_failure(device: CpuDevice) -> None:
    """Ctrl-C in the middle of an inline stage stops the program at once, and the lane can still run the last word."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    lane = device.lane("lane")
    with pytest.raises(KeyboardInterrupt):
        launch(device, lane, interrupted)
    launch(device, lane, lambda: None).wait()


def test_a_lanes_thread_outlives_whatever_its_stage_raises(device: CpuDevice) -> None:
    def leave() -> None:
        raise SystemExit(3)

    lane = device.lane("lane", threads=1)
    with pytest.raises(SystemExit):
        launch(device, lane, leave).wait()
    launch(device, lane, lambda: None).wait()


@pytest.mark.parametrize("options", [{}, {"threads": 1}])
def test_a_stage_may_not_launch_on_its_own_lane(device: CpuDevice, options: dict[str, int]) -> None:
    """It would wait for itself."""
    lane = device.lane("lane", **options)  # type: ignore[arg-type]
    inner = device.capture("inner", lambda: None, lane)
    with pytest.raises(DeviceError, match="'inner': launched from inside a stage of its own lane 'lane'"):
        launch(device, lane, lambda: lane.launch(inner)).wait()


class Told(threading.Condition):
    """A condition that says when somebody is about to wait for it."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__(lock)
        self.waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_for.set()
        return super().wait(timeout)


def full_lane(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> tuple[ThreadLane, threading.Event, Told]:
    """A lane that holds two launches at most and has them; its first stage ends when the gate opens."""
    monkeypatch.setattr(thread_lane_module, "DEPTH", 2)
    lane, gate = device.lane("lane", threads=1), threading.Event()
    assert isinstance(lane, ThreadLane)
    told = lane.ended = Told(lane.lock)
    for _ in range(2):
        launch(device, lane, lambda: reach(gate))
    return lane, gate, told


def test_a_full_lane_makes_the_next_launch_wait(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, gate, told = full_lane(device, monkeypatch)
    launched: list[Mark] = []
    third = threading.Thread(target=lambda: launched.append(launch(device, lane, lambda: None)))
    third.start()
    reach(told.waited_for)
    assert launched == []
    gate.set()
    third.join()
    launched[0].wait()


def test_closing_refuses_a_launch_that_waits_for_room(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, gate, told = full_lane(device, monkeypatch)
    refused: list[str] = []

    def try_it() -> None:
        try:
            launch(device, lane, lambda: None, name="third")
        except DeviceError as error:
            refused.append(str(error))

    third = threading.Thread(target=try_it)
    third.start()
    reach(told.waited_for)
    closer = threading.Thread(target=device.close)
    closer.start()
    third.join()
    gate.set()
    closer.join()
    assert refused == ["stage 'third': lane 'lane' is closed"]


def test_close_runs_what_was_launched_and_ends_the_threads() -> None:
    before = set(threading.enumerate())
    device, gate, seen = CpuDevice(), threading.Event(), list[int]()
    lanes = [device.lane(name, threads=1) for name in ("one", "two")]
    first = launch(device, lanes[0], lambda: reach(gate))
    assert set(threading.enumerate()) > before
    for number in range(20):
        launch(device, lanes[number % 2], lambda number=number: seen.append(number), first)
    gate.set()
    device.close()
    assert sorted(seen) == list(range(20))
    assert set(threading.enumerate()) <= before


# --- cores and intra-op threads


@two_cores
def test_a_lane_runs_on_its_cores_and_leaves_the_others_theirs(device: CpuDevice) -> None:
    for core in HERE[:2]:
        seen: list[set[int]] = []
        launch(device, device.lane("lane", cores=[core]), lambda seen=seen: seen.append(os.sched_getaffinity(0))).wait()
        assert seen == [{core}]
    assert sorted(os.sched_getaffinity(0)) == HERE


def test_without_cores_a_lane_stays_on_its_makers(device: CpuDevice) -> None:
    seen: list[set[int]] = []
    launch(device, device.lane("lane", threads=1), lambda: seen.append(os.sched_getaffinity(0))).wait()
    assert seen == [set(HERE)]


def tasks() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


@two_cores
def test_openmps_threads_run_on_the_lanes_cores(device: CpuDevice) -> None:
    """torch starts them at the lane's first parallel operation. The thread that makes the lane is on one core only."""
    seen: list[set[int]] = []
    os.sched_setaffinity(0, HERE[:1])
    try:
        lane = device.lane("lane", cores=HERE[:2], threads=2)
        value = torch.ones(400_000)

        def spread() -> None:
            before = tasks()
            value.exp_()
            seen.extend(os.sched_getaffinity(task) for task in tasks() - before)

        launch(device, lane, spread).wait()
    finally:
        os.sched_setaffinity(0, HERE)
    assert seen == [set(HERE[:2])]


@pytest.fixture
def threaded() -> Iterator[Callable[[int], ThreadLane]]:
    """Lanes with any number of threads, also where there are not as many cores: nothing heavy runs on them."""
    made: list[ThreadLane] = []

    def make(threads: int) -> ThreadLane:
        made.append(ThreadLane(f"lane{threads}", None, threads, StageFailures()))
        return made[-1]

    yield make
    for lane in made:
        lane.close()


def test_each_lane_has_its_own_number_of_intra_op_threads(threaded: Callable[[int], ThreadLane]) -> None:
    """The second lane's number must not become the first one's, which has run nothing yet."""
    own, numbers = torch.get_num_threads(), list[int]()
    lanes = [threaded(count) for count in (2, 1, 3)]
    for lane in (*lanes, *lanes):
        lane.launch(PlainStage("ask", lambda: numbers.append(torch.get_num_threads()), lane)).wait()
    assert numbers == [2, 1, 3, 2, 1, 3]
    assert torch.get_num_threads() == own


def test_a_lanes_number_of_threads_is_not_everybodys(threaded: Callable[[int], ThreadLane]) -> None:
    """torch keeps the last number that any thread set for all threads that start later."""
    own, seen = torch.get_num_threads(), list[int]()
    threaded(own + 1)
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [own]


def test_a_lane_on_several_cores_has_one_thread_unless_asked() -> None:
    assert checked("lane", [0, 1, 2], None) == ({0, 1, 2}, 1)
    assert checked("lane", [0, 1, 2], 3) == ({0, 1, 2}, 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cores": [HERE[0]], "threads": 2}, r"threads 2 on 1 core\(s\): never more threads than cores"),
        ({"threads": len(HERE) + 1}, rf"threads {len(HERE) + 1} on {len(HERE)} core\(s\)"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"cores": []}, r"cores must be different core numbers, at least one, got \[\]"),
        ({"cores": [HERE[0], HERE[0]]}, "cores must be different core numbers"),
        ({"cores": [-1]}, "cores must be different core numbers"),
        ({"cores": [4000]}, r"cores \[4000\] are not available here"),
        ({"cores": [HERE[0], 1000]}, r"cores \[1000\] are not available here"),
    ],
)
def test_an_impossible_lane_is_refused_by_name(device: CpuDevice, options: dict[str, object], said: str) -> None:
    """The last one is the quiet kind: Linux gives a thread those of its cores that exist and says nothing."""
    before = set(threading.enumerate())
    with pytest.raises(DeviceError, match=f"lane 'mind': {said}"):
        device.lane("mind", **options)  # type: ignore[arg-type]
    assert set(threading.enumerate()) <= before


def test_cores_on_a_system_without_them_are_refused(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(DeviceError, match="lane 'mind': cores cannot be set on this system"):
        device.lane("mind", cores=HERE)
    launch(device, device.lane("mind", threads=1), lambda: None).wait()
