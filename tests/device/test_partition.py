"""Partitions on a CPU and in virtual time: parts that share no unit, each with threads and lanes of its own.

Guards: a forward on the other part's cores; OpenMP's threads that kept the cores of another split; parts that take
turns; a number of threads that leaks into others; threads that outlive their partitions; more of OpenMP's threads than
cores, which slow every operation.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.device import DeviceError, Spans
from auras_ros.device.cores import in_own_thread
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cpu_partition import CpuPartitions
from tests.device.null_device import NullDevice, NullPartitions

WAIT_S = 30.0  # no event of these tests is waited for that long unless it never comes
HERE = sorted(os.sched_getaffinity(0))

two_cores = pytest.mark.skipif(len(HERE) < 2, reason="needs two cores")


@pytest.fixture
def halves(device: CpuDevice) -> Iterator[CpuPartitions]:
    """Two cores, 1|1."""
    made = CpuPartitions(device, HERE[:2])
    yield made
    made.close()


def cores_of(part: object, name: str = "stage") -> set[int]:
    return part.executor(name).submit(os.sched_getaffinity, 0).result(WAIT_S)  # type: ignore[attr-defined]


@two_cores
def test_two_cores_have_one_split_and_its_parts_share_no_core(halves: CpuPartitions) -> None:
    assert (halves.units, halves.sizes) == (2, (1,))
    assert cores_of(halves.first(1)) == {HERE[1]}
    assert cores_of(halves.second(1)) == {HERE[0]}
    assert cores_of(halves.whole()) == set(HERE[:2])
    assert [part.units for part in (halves.first(1), halves.second(1), halves.whole())] == [1, 1, 2]
    names = {part.name for part in (halves.first(1), halves.second(1), halves.whole())}
    assert names == {f"core {HERE[1]}", f"core {HERE[0]}", f"cores {HERE[0]}, {HERE[1]}"}


@two_cores
def test_operations_have_as_many_threads_as_cores_and_those_stay_on_them(halves: CpuPartitions) -> None:
    """The threads that OpenMP starts for a part's thread are those that were not there before its first operation."""
    own, default = torch.get_num_threads(), list[int]()

    def work() -> tuple[int, list[set[int]]]:
        before = {int(each) for each in os.listdir("/proc/self/task")}
        x = torch.randn(512, 512)
        for _ in range(3):
            x = torch.tanh(x @ x)
        new = {int(each) for each in os.listdir("/proc/self/task")} - before
        return torch.get_num_threads(), [os.sched_getaffinity(each) for each in new]

    for part in (halves.whole(), halves.first(1), halves.second(1)):
        threads, cores = part.executor("stage").submit(work).result(WAIT_S)
        assert (threads, len(cores)) == (part.units, part.units - 1)
        assert all(each <= cores_of(part) for each in cores)
    assert torch.get_num_threads() == own
    other = threading.Thread(target=lambda: default.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert default == [own]


@two_cores
def test_the_parts_of_a_split_run_side_by_side(halves: CpuPartitions) -> None:
    """Both forwards must be running for either to end."""
    meet = threading.Barrier(2, timeout=WAIT_S)
    futures = [part.executor("stage").submit(meet.wait) for part in (halves.first(1), halves.second(1))]
    assert sorted(each.result(WAIT_S) for each in futures) == [0, 1]


@two_cores
def test_a_stage_is_captured_for_each_part_and_computes_the_same(device: CpuDevice, halves: CpuPartitions) -> None:
    x, out = torch.randn(8, 8), torch.zeros(8, 8)

    def double() -> None:
        out.copy_(x * 2)

    parts = [halves.first(1), halves.second(1), halves.whole()]
    lanes = [part.lane("double") for part in parts]
    stages = [device.capture("double", double, lane) for lane in lanes]
    for part, lane, stage in zip(parts, lanes, stages, strict=True):
        out.zero_()
        part.executor("double").submit(lambda lane=lane, stage=stage: lane.launch(stage).wait()).result(WAIT_S)
        assert torch.equal(out, x * 2)
    with pytest.raises(DeviceError, match=r"stage 'double' was not captured for lane 'double, core"):
        lanes[0].launch(stages[1])


@two_cores
def test_a_part_has_one_thread_for_each_name(halves: CpuPartitions) -> None:
    part = halves.first(1)
    assert part is halves.first(1)
    assert part.executor("vision") is part.executor("vision")
    assert part.executor("vision") is not part.executor("decode")


@pytest.mark.parametrize(
    ("cores", "sizes", "said"),
    [
        ([], None, "cores must be different core numbers, at least one"),
        ([HERE[0], HERE[0]], None, "cores must be different core numbers"),
        ([-1], None, "cores must be different core numbers"),
        ([HERE[0], 4000], None, r"cores \[4000\] are not available here"),
        ([4000], None, r"cores \[4000\] are not available here"),
        ([HERE[0]], [1], r"a part of 1 of 1 core\(s\) leaves nothing"),
        ([HERE[0]], [0], r"a part of 0 of 1 core\(s\) leaves nothing"),
    ],
)
def test_cores_and_sizes_that_cannot_be_are_named(
    device: CpuDevice, cores: Sequence[int], sizes: Sequence[int] | None, said: str
) -> None:
    with pytest.raises(DeviceError, match=said):
        CpuPartitions(device, cores, sizes)


def test_one_core_cannot_be_divided(device: CpuDevice) -> None:
    alone = CpuPartitions(device, HERE[:1])
    assert (alone.units, alone.sizes) == (1, ())
    with pytest.raises(DeviceError, match="a part of 1 of 1: prepared are none"):
        alone.first(1)
    alone.close()


@two_cores
def test_a_size_that_was_not_prepared_is_named(halves: CpuPartitions) -> None:
    for part in (halves.first, halves.second):
        with pytest.raises(DeviceError, match=r"a part of 2 of 2: prepared are \(1,\)"):
            part(2)


@two_cores
def test_closing_finishes_what_was_handed_over_and_ends_the_threads(device: CpuDevice) -> None:
    made = CpuPartitions(device, HERE[:2])
    gate = threading.Event()
    future = made.first(1).executor("of this test").submit(gate.wait, WAIT_S)
    gate.set()
    made.close()
    made.close()
    assert future.result(0)
    assert not [each for each in threading.enumerate() if each.name.startswith("of this test")]
    with pytest.raises(DeviceError, match=r"'stage': partition 'cores? .*' is closed"):
        made.first(1).executor("stage")
    with pytest.raises(DeviceError, match=r"'stage': partition 'cores? .*' is closed"):
        made.whole().lane("stage")


# -- in virtual time -------------------------------------------------------------------------------------

TIMES_NS = {"look": 9, ("first 1 of 4", "look"): 80, ("second 3 of 4", "look"): 30, ("4", "look"): 20}


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def sum_up() -> float:
    return float(torch.ones(1 << 20).add_(1.0).sum())  # on as many threads as there may be


@two_cores
def test_all_cores_have_one_thread_for_every_name_and_a_further_one_only_while_two_share_them(
    halves: CpuPartitions,
) -> None:
    one, other = halves.whole().executor("decode"), halves.whole().executor("encode")
    first = one.submit(threading.get_ident).result(WAIT_S)
    assert {each.submit(threading.get_ident).result(WAIT_S) for each in (one, other, one)} == {first}
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> int:
        begun.set()
        assert go_on.wait(WAIT_S)
        return threading.get_ident()

    held = one.submit(hold)
    assert begun.wait(WAIT_S)
    second = {other.submit(threading.get_ident).result(WAIT_S) for _ in range(3)}
    assert len(second) == 1
    assert first not in second
    assert other.submit(os.sched_getaffinity, 0).result(WAIT_S) == set(HERE[:2])
    go_on.set()
    assert held.result(WAIT_S) == first
    assert other.submit(threading.get_ident).result(WAIT_S) == first
    deadline = time.monotonic() + WAIT_S
    while second & {each.ident for each in threading.enumerate()}:  # it ends, and OpenMP's threads with it
        assert time.monotonic() < deadline
        time.sleep(0.01)


@two_cores
def test_openmps_threads_end_with_the_thread_that_loads() -> None:
    def on_two() -> tuple[set[str], set[str], int]:
        torch.set_num_threads(2)
        before = tasks()
        assert in_own_thread(sum_up) == 2 << 20
        count, deadline = torch.get_num_threads(), time.monotonic() + WAIT_S
        while tasks() - before and time.monotonic() < deadline:
            time.sleep(0.01)
        apart = tasks()
        sum_up()
        return apart - before, tasks() - apart, count

    default = torch.get_num_threads()
    with ThreadPoolExecutor(1) as executor:
        left, own, count = executor.submit(on_two).result(WAIT_S)
    torch.set_num_threads(default)
    assert (left, count) == (set(), 2)
    assert len(own) == 1  # otherwise there was nothing to end


def test_what_fails_in_a_thread_of_its_own_fails_here() -> None:
    with pytest.raises(ZeroDivisionError):
        in_own_thread(lambda: 1 // 0)


def test_in_virtual_time_a_stage_takes_what_the_table_says_for_its_part() -> None:
    clock, spans = VirtualClock(), Spans(8)
    device = NullDevice(clock, TIMES_NS, spans)
    parts = NullPartitions(device, 4, (1, 2))
    assert (parts.units, parts.sizes) == (4, (1, 2))
    took = []
    for part in (parts.first(1), parts.second(1), parts.whole(), parts.first(2)):
        lane = part.lane("look")
        start_ns = clock.now_ns()
        part.executor("look").submit(lane.launch(device.capture("look", lambda: None, lane)).wait).result()
        took.append(clock.now_ns() - start_ns)
    assert took == [80, 30, 20, 9]
    assert [span.lane for span in spans.rows()][:2] == ["look, first 1 of 4", "look, second 3 of 4"]
    parts.close()


def test_in_virtual_time_parts_run_side_by_side() -> None:
    clock = VirtualClock()
    device = NullDevice(clock, TIMES_NS)
    parts = NullPartitions(device, 4, (1,))
    lanes = [parts.first(1).lane("look"), parts.second(1).lane("look")]
    marks = [lane.launch(device.capture("look", lambda: None, lane)) for lane in lanes]
    for mark in marks:
        mark.wait()
    assert clock.now_ns() == 80


def test_in_virtual_time_a_failure_is_the_futures() -> None:
    parts = NullPartitions(NullDevice(VirtualClock(), TIMES_NS), 4, (1,))
    with pytest.raises(ZeroDivisionError):
        parts.first(1).executor("look").submit(lambda: 1 // 0).result()
