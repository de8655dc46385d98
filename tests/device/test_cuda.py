"""What the CUDA lanes put in order, on a stand-in GPU that reorders whatever they forget (fake_cuda.py).

On a real GPU, tests/device/test_lanes.py compares them with the CPU. Guards: a launch that does not wait for its
marks, for its lane or for the caller's copies; events taken back while they are needed; two lanes in one memory pool;
a failed capture that spoils the next; spans that drift away from the host's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.clock import VirtualClock
from auras_ros.device import DeviceError, Lane, Mark, Spans, cannot_capture
from auras_ros.device import cuda as cuda_module
from auras_ros.device import cuda_lane as cuda_lane_module
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cuda import WARM_UP_RUNS, CudaDevice
from auras_ros.device.cuda_time import HostScale
from tests.device.fake_cuda import Event, Gpu, Stream, install

MS = 1_000_000


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    return install(monkeypatch)


def step(gpu: Gpu, device: CudaDevice, lane: Lane, log: list[str], name: str) -> Any:
    """A stage of one kernel that writes its name; a call launches it. Its warm-up's traces are wiped."""
    stage = device.capture(name, lambda: gpu.kernel(lambda: log.append(name)), lane)
    log.clear()
    return lambda *after: lane.launch(stage, after)


PROGRAMS = st.lists(
    st.tuples(
        st.integers(0, 2), st.lists(st.integers(0, 30), max_size=3), st.integers(0, 9), st.booleans(), st.booleans()
    ),
    min_size=1,
    max_size=30,
)


def run_program(device: CudaDevice | CpuDevice, program: list[Any], gpu: Gpu | None) -> list[int]:
    """Every launch folds the caller's latest input, and the results of what it came after, into its lane's value. Some
    stages cannot be captured."""
    lanes = [device.lane(str(number)) for number in range(3)]
    values, results, inputs = [1, 2, 3], [0] * len(program), [0] * len(program)

    def put(run: Any) -> None:
        run() if gpu is None else gpu.kernel(run)

    def body(number: int, lane: int, earlier: list[int], eager: bool) -> None:
        if eager:
            cannot_capture("asked for")
        put(partial(work, number, lane, earlier))

    def work(number: int, lane: int, earlier: list[int]) -> None:
        values[lane] = values[lane] * 7 + inputs[number] + sum(results[index] for index in earlier)
        results[number] = values[lane]

    earlier = [[index for index in after if index < number] for number, (_, after, *_) in enumerate(program)]
    bodies = [partial(body, number, step[0], earlier[number], step[4]) for number, step in enumerate(program)]
    stages = [device.capture(str(n), body, lanes[program[n][0]]) for n, body in enumerate(bodies)]
    values[:], results[:] = [1, 2, 3], [0] * len(program)  # what the warm-ups did
    marks: list[Mark] = []
    for number, (lane, _, value, waits, _) in enumerate(program):
        put(partial(inputs.__setitem__, number, value))
        marks.append(lanes[lane].launch(stages[number], [marks[index] for index in earlier[number]]))
        if waits:
            marks[number // 2].wait()
            assert marks[number // 2].done()
            assert results[number // 2] != 0
    for mark in marks:
        mark.wait()
    return [*values, *results]


@settings(max_examples=150, deadline=None)
@given(PROGRAMS, st.integers(0, 10_000), st.integers(1, 4))
def test_any_program_computes_what_plain_calls_compute(program: list[Any], seed: int, depth: int) -> None:
    """Whatever is out of order changes a number. With few slots, events are used again and again."""
    plain = CpuDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_lane_module, "DEPTH", depth)
        gpu = install(patch, seed)
        real = run_program(CudaDevice(Spans(8)), program, gpu)
    assert real == run_program(plain, program, None)
    plain.close()


def test_the_stand_in_catches_what_is_not_put_in_order(gpu: Gpu) -> None:
    """The property above proves nothing on a GPU that runs everything in the order of the calls."""
    orders = set()
    for seed in range(20):
        gpu.random.seed(seed)
        device, log = CudaDevice(), list[str]()
        launches = [step(gpu, device, device.lane(name), log, name) for name in "ab"]
        for mark in [launch() for launch in launches]:
            mark.wait()
        orders.add(tuple(log))
    assert orders == {("a", "b"), ("b", "a")}


def test_a_mark_is_done_when_the_gpu_is(gpu: Gpu) -> None:
    device, log = CudaDevice(), list[str]()
    mark = step(gpu, device, device.lane("lane"), log, "a")()
    assert not mark.done()
    assert log == []
    mark.wait()
    assert mark.done()
    assert log == ["a"]


def test_an_old_mark_is_done_and_waits_for_nothing(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event stands for a later launch by now, which may be far from over."""
    monkeypatch.setattr(cuda_lane_module, "DEPTH", 2)
    device, log = CudaDevice(), list[str]()
    launch = step(gpu, device, device.lane("lane"), log, "a")
    old, _, _ = launch(), launch(), launch()
    gpu.synchronised.clear()
    assert old.done()
    old.wait()
    assert gpu.synchronised == []


def test_a_host_that_waits_sleeps(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `blocking` a waiting thread spins: a core for every worker. By marks, slots, and at the end."""
    monkeypatch.setattr(cuda_lane_module, "DEPTH", 2)
    device, log = CudaDevice(), list[str]()
    launch = step(gpu, device, device.lane("lane"), log, "a")
    marks = [launch() for _ in range(4)]
    marks[-1].wait()
    launch()
    device.close()
    assert len(gpu.synchronised) >= 4
    assert all(event.blocking for event in gpu.synchronised)


def test_a_launch_after_an_old_mark_does_not_wait_for_the_lanes_later_launches(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_lane_module, "DEPTH", 2)
    overtook = set()
    for seed in range(20):
        gpu.random.seed(seed)
        device, log = CudaDevice(), list[str]()
        lane, other = (step(gpu, device, device.lane(name), log, name) for name in "ab")
        old, _, _ = lane(), lane(), lane()
        other(old).wait()
        overtook.add("".join(log) != "aaab")
    assert True in overtook


def test_a_stage_of_another_lane_is_refused(gpu: Gpu) -> None:
    device = CudaDevice()
    stage = device.capture("a", lambda: None, device.lane("one"))
    with pytest.raises(DeviceError, match="stage 'a' was not captured for lane 'two'"):
        device.lane("two").launch(stage)


def test_a_closed_lane_takes_nothing(gpu: Gpu) -> None:
    device = CudaDevice()
    lane = device.lane("lane")
    stage = device.capture("a", lambda: None, lane)
    device.close()
    with pytest.raises(DeviceError, match="stage 'a': lane 'lane' is closed"):
        lane.launch(stage)
    with pytest.raises(DeviceError, match="lane 'more': the device is closed"):
        device.lane("more")


def test_a_lane_holds_a_bounded_number_of_launches(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_lane_module, "DEPTH", 3)
    device, log = CudaDevice(), list[str]()
    launch = step(gpu, device, device.lane("lane"), log, "a")
    for number in range(10):
        launch()
        assert number + 1 - len(log) <= 3


def test_a_body_is_warmed_up_and_then_captured_on_its_lanes_stream(gpu: Gpu) -> None:
    """For what a capture may not do: lazy initialisation, autotuning."""
    device = CudaDevice()
    lane, calls = device.lane("lane"), list[tuple[bool, Any, bool]]()
    device.capture("a", lambda: calls.append((gpu.capturing is None, gpu.current, torch.is_grad_enabled())), lane)
    assert calls == [(True, lane.stream, False)] * WARM_UP_RUNS + [(False, lane.stream, False)]
    assert gpu.captures[0]["mode"] == "thread_local"
    assert gpu.current is gpu.default


@pytest.mark.parametrize("seed", range(8))
def test_a_warm_up_sees_what_the_caller_has_put_on_the_gpu(gpu: Gpu, seed: int) -> None:
    gpu.random.seed(seed)
    device, log = CudaDevice(), list[str]()
    gpu.kernel(lambda: log.append("fill"))
    device.capture("a", lambda: gpu.kernel(lambda: log.append("body")), device.lane("lane"))
    assert log == ["fill", *["body"] * WARM_UP_RUNS]


def test_lanes_share_no_memory_pool_and_stages_of_one_lane_do(gpu: Gpu) -> None:
    """Two graphs that replay side by side in one pool would write over each other's temporaries."""
    device = CudaDevice()
    lanes = [device.lane("one"), device.lane("two")]
    for lane in (lanes[0], lanes[1], lanes[0]):
        device.capture("a", lambda: None, lane)
    pools = [capture["pool"] for capture in gpu.captures]
    assert pools[0] == pools[2] != pools[1]


def test_a_stage_that_cannot_be_captured_is_named_with_its_own_reason(gpu: Gpu) -> None:
    """Not with the one that the capture's end adds. The next capture starts from a clean state."""

    def reads_back() -> None:
        if gpu.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")

    device = CudaDevice()
    lane = device.lane("lane")
    with pytest.raises(DeviceError, match="stage 'look' cannot be captured: operation not permitted when stream is"):
        device.capture("look", reads_back, lane)
    assert gpu.current is gpu.default
    device.capture("think", lambda: None, lane)
    assert gpu.captures[0]["pool"] != gpu.captures[1]["pool"]


class TellingLock:
    """A lock that says when somebody asks for it while it is held."""

    def __init__(self) -> None:
        self.lock, self.asked = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if self.lock.locked():
            self.asked.set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_captures_take_turns(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers capture in threads of their own, and a process may have one capture under way."""
    lock, order = TellingLock(), list[str]()
    monkeypatch.setattr(cuda_module, "_CAPTURING", lock)
    device = CudaDevice()
    first, second = device.lane("first"), device.lane("second")
    other = threading.Thread(target=lambda: device.capture("b", lambda: order.append("b"), second))

    def body() -> None:
        if gpu.capturing is not None:
            other.start()
            assert lock.asked.wait(30), "the other capture went ahead"
        order.append("a")

    device.capture("a", body, first)
    other.join()
    assert order == ["a"] * (WARM_UP_RUNS + 1) + ["b"] * (WARM_UP_RUNS + 1)


def test_a_stage_that_fails_by_itself_is_named_before_its_capture(gpu: Gpu) -> None:
    device = CudaDevice()
    with pytest.raises(DeviceError, match=r"stage 'look' failed in its warm-up on cuda:0: .*by zero"):
        device.capture("look", lambda: 1 // 0, device.lane("lane"))
    assert gpu.captures == []
    assert gpu.current is gpu.default


def test_a_lane_may_be_given_its_stream(gpu: Gpu) -> None:
    """A partition will be one: its stages are captured and replayed there."""
    stream, device, log = Stream(gpu), CudaDevice(), list[str]()
    lane = device.lane("lane", stream=stream)
    launch = step(gpu, device, lane, log, "a")
    launch()
    assert gpu.captures[0]["stream"] is stream
    assert stream.queue


def test_a_cpu_lanes_options_change_nothing(gpu: Gpu) -> None:
    """An executor asks every device for the same lanes; these are out of range on any host."""
    device, log = CudaDevice(), list[str]()
    step(gpu, device, device.lane("lane", cores=[4000], threads=9), log, "a")().wait()
    assert log == ["a"]


def test_marks_of_another_device_are_refused(gpu: Gpu) -> None:
    cpu, device = CpuDevice(), CudaDevice()
    inline = cpu.lane("inline")
    mark = inline.launch(cpu.capture("a", lambda: None, inline))
    with pytest.raises(DeviceError, match="lane 'lane': a CUDA launch cannot come after a OverMark"):
        step(gpu, device, device.lane("lane"), [], "a")(mark)


# --- spans on the host's clock


def test_spans_are_there_when_a_launch_is_over_and_without_waiting(gpu: Gpu) -> None:
    spans, log = Spans(8), list[str]()
    device = CudaDevice(spans)
    launch = step(gpu, device, device.lane("lane"), log, "a")
    done, held = launch(), launch()
    done.wait()
    gpu.synchronised.clear()
    device.collect()
    assert len(spans.rows()) == 1
    assert not held.done()
    device.close()
    assert [row.stage for row in spans.rows()] == ["a", "a"]
    assert all(row.end_ns - row.start_ns == MS for row in spans.rows())


def test_spans_of_launches_whose_slot_is_needed_are_written(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_lane_module, "DEPTH", 2)
    spans = Spans(16)
    device = CudaDevice(spans)
    launch = step(gpu, device, device.lane("lane"), [], "a")
    for _ in range(9):
        launch()
    device.close()
    assert len(spans.rows()) == 9


def test_without_spans_nothing_is_timed(gpu: Gpu) -> None:
    device = CudaDevice()
    mark: Any = step(gpu, device, device.lane("lane"), [], "a")()
    assert not mark.slot.end.timing
    device.close()


class DriftingGpu:
    """A GPU whose clock runs 50 millionths fast, on a host whose time passes when it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock(10**15)
        self.gpu = install(patch)
        self.gpu.now_ms = lambda: 7e6 + self.clock.now_ns() * (1 + 50e-6) / 1e6
        self.scale = HostScale(torch.device("cuda", 0), self.clock)

    def measured(self, duration_ns: int) -> tuple[int, int, int]:
        """When something began that lasts as long, and its span as the scale tells it."""
        anchor, begin, end = self.scale.anchor(), self.event(), self.event()
        began_ns = self.clock.now_ns()
        begin.record(self.gpu.default)
        self.gpu.run_until(begin.query)
        self.clock.advance(duration_ns)
        end.record(self.gpu.default)
        self.gpu.run_until(end.query)
        return (began_ns, *anchor.span_ns(begin, end))  # type: ignore[arg-type]

    def event(self) -> Event:
        return Event(self.gpu, enable_timing=True)


@pytest.mark.parametrize("hours", [0, 1, 24])
def test_a_span_stays_on_the_hosts_clock_for_days(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single reading would be 180 ms off after an hour by drift alone, and grain after minutes by its precision."""
    drifting = DriftingGpu(monkeypatch)
    drifting.clock.advance(hours * 3600 * 1000 * MS + 900 * MS)
    began_ns, start_ns, end_ns = drifting.measured(5 * MS)
    assert abs(start_ns - began_ns) < 60_000
    assert abs(end_ns - start_ns - 5 * MS) < 1_000


def test_the_clocks_are_read_together_about_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    drifting = DriftingGpu(monkeypatch)
    anchors = []
    for _ in range(50):
        anchors.append(drifting.scale.anchor())
        drifting.clock.advance(100 * MS)
    assert len({anchor.host_ns for anchor in anchors}) == 5


def test_the_closest_of_several_readings_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is interrupted in the middle of all but one."""
    gpu, clock = install(monkeypatch), VirtualClock(10**12)
    delays_ns = iter([3 * MS, 2 * MS, 10, 4 * MS, 5 * MS])
    monkeypatch.setattr(Event, "synchronize", lambda event: clock.advance(next(delays_ns)))
    gpu.now_ms = lambda: 0.0
    anchor = HostScale(torch.device("cuda", 0), clock).anchor()
    assert anchor.error_ns == 5
    assert anchor.host_ns == 10**12 + 5 * MS + 5


# -- stages that are not captured ------------------------------------------------------------------------


def test_a_body_that_says_so_is_run_on_its_lanes_stream_at_every_launch_and_never_captured(gpu: Gpu) -> None:
    device = CudaDevice()
    lane, calls = device.lane("lane"), list[tuple[bool, Any, bool]]()

    def body() -> None:
        cannot_capture("it waits")
        cannot_capture("it reads back")
        calls.append((gpu.capturing is None, gpu.current, torch.is_grad_enabled()))

    stage = device.capture("look", body, lane)
    assert not stage.captured
    assert device.uncaptured == {"look": ("it waits", "it reads back")}
    assert gpu.captures == []
    assert len(calls) == 1  # what is said once is believed
    for _ in range(2):
        lane.launch(stage).wait()
    assert calls == [(True, lane.stream, False)] * 3
    assert gpu.current is gpu.default
    assert device.capture("think", lambda: None, lane).captured
    device.close()


def test_what_an_uncaptured_stage_raises_reaches_who_waits_and_what_comes_after_it_does_not_run(gpu: Gpu) -> None:
    device, log, fails = CudaDevice(), list[str](), list[bool]()
    one, two = device.lane("one"), device.lane("two")

    def body() -> None:
        cannot_capture("it is moody")
        if fails:
            raise MemoryError("no room")
        gpu.kernel(lambda: log.append("moody"))

    moody = device.capture("moody", body, one)
    after = step(gpu, device, two, log, "after")
    fails.append(True)
    failed = one.launch(moody)
    second = after(failed)
    for mark in (second, failed, failed):
        with pytest.raises(MemoryError, match="no room"):
            mark.wait()
    assert failed.done()
    assert log == []
    fails.clear()
    after(one.launch(moody)).wait()  # the lane goes on
    assert log == ["moody", "after"]
    device.close()


def test_an_old_mark_of_a_failure_still_fails(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot stands for a later launch by then."""
    monkeypatch.setattr(cuda_lane_module, "DEPTH", 1)
    device, fails = CudaDevice(), list[bool]()
    lane = device.lane("lane")

    def body() -> None:
        cannot_capture("it is moody")
        if fails:
            raise MemoryError("no room")

    moody = device.capture("moody", body, lane)
    fails.append(True)
    failed = lane.launch(moody)
    fails.clear()
    lane.launch(moody).wait()
    with pytest.raises(MemoryError, match="no room"):
        failed.wait()


def test_closing_tells_of_an_uncaptured_stages_failure_that_nobody_waited_for(gpu: Gpu) -> None:
    device, fails = CudaDevice(), list[bool]()
    lane = device.lane("lane")

    def body() -> None:
        cannot_capture("it is moody")
        if fails:
            raise MemoryError("no room")

    moody = device.capture("moody", body, lane)
    fails.append(True)
    lane.launch(moody)
    with pytest.raises(DeviceError, match="nobody waited for failed stages: 'moody'"):
        device.close()
