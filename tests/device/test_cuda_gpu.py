"""What only a real GPU can show. The rest is in test_lanes.py, which runs on one too."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from auras_ros.device import Spans
from auras_ros.device.cuda import POOLED_STREAMS, CudaDevice

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def spans() -> Spans:
    return Spans(1024)


@pytest.fixture
def device(spans: Spans) -> Iterator[CudaDevice]:
    made = CudaDevice(spans)
    yield made
    made.close()


READS_BACK = """
import torch
from auras_ros.device import DeviceError
from auras_ros.device.cuda import POOLED_STREAMS, CudaDevice

device = CudaDevice()
value, lane, before = torch.ones(4, device=device.tensors), device.lane("lane"), torch.cuda.current_stream()
try:
    device.capture("look", lambda: value.sum().item() and None, lane)
except DeviceError as error:
    print(error)
assert torch.cuda.current_stream() == before
if {again}:
    stage = device.capture("think", lambda: value.mul_(2) and None, lane)
    value.fill_(3)
    lane.launch(stage).wait()
    assert value.eq(6).all()
"""


def test_a_stage_that_reads_back_cannot_be_captured_and_the_next_one_can() -> None:
    """In a process of its own: before torch 2.12 no capture succeeds after one that failed."""
    again = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)
    done = subprocess.run(
        [sys.executable, "-c", READS_BACK.format(again=again)], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("stage 'look' cannot be captured: ")


def test_a_capture_survives_what_other_threads_do_on_the_gpu(device: CudaDevice) -> None:
    """Allocating is forbidden to the thread that captures, and to it alone."""
    stop = threading.Event()
    value = torch.ones(1 << 10, device=device.tensors)

    def disturb() -> None:
        size = 1 << 20
        while not stop.is_set():
            size = 1 << 20 if size > 1 << 26 else size + (1 << 16)
            torch.empty(size, device=device.tensors)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        for _ in range(5):
            lane = device.lane("lane")
            stage = device.capture("think", lambda: value.copy_(value * 2 + 1), lane)  # type: ignore
            value.fill_(1)
            lane.launch(stage).wait()
            assert value.eq(3).all()
    finally:
        stop.set()
        other.join()


def test_graphs_of_lanes_side_by_side_keep_their_temporaries_apart(device: CudaDevice) -> None:
    """Both stages are all temporaries; in one pool they would share them."""
    inputs = [torch.randn(512, 512, device=device.tensors) / 20 for _ in range(2)]
    outputs = [torch.zeros_like(x) for x in inputs]

    def body(k: int) -> None:
        x = inputs[k]
        for _ in range(20):
            x = torch.tanh(x @ inputs[k])
        outputs[k].copy_(x)

    lanes = [device.lane(str(k)) for k in range(2)]
    stages = [device.capture(str(k), lambda k=k: body(k), lanes[k]) for k in range(2)]  # type: ignore[misc]
    expected = []
    for k in range(2):
        body(k)
        expected.append(outputs[k].clone())
    for _ in range(50):
        for output in outputs:
            output.zero_()
        for mark in [lane.launch(stage) for lane, stage in zip(lanes, stages, strict=True)]:
            mark.wait()
        torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


def test_spans_lie_between_the_launch_and_the_end_of_the_wait(device: CudaDevice, spans: Spans) -> None:
    value = torch.randn(2048, 2048, device=device.tensors)
    lane = device.lane("lane")
    stage = device.capture("square", lambda: value.copy_(torch.tanh(value @ value)), lane)  # type: ignore[arg-type]
    slack_ns = 200_000  # how well the two clocks were read together
    around = []
    for _ in range(20):
        before_ns = time.monotonic_ns()
        lane.launch(stage).wait()
        around.append((before_ns, time.monotonic_ns()))
    device.collect()
    rows = spans.rows()
    assert len(rows) == 20
    for row, (before_ns, after_ns) in zip(rows, around, strict=True):
        assert before_ns - slack_ns <= row.start_ns <= row.end_ns <= after_ns + slack_ns


def test_a_thousand_launches_take_no_gpu_memory(device: CudaDevice) -> None:
    value = torch.randn(256, 256, device=device.tensors)
    lane = device.lane("lane")
    stage = device.capture("square", lambda: value.copy_(torch.tanh(value @ value)), lane)  # type: ignore[arg-type]
    lane.launch(stage).wait()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(1000):
        mark = lane.launch(stage)
    mark.wait()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_a_lane_that_shares_a_stream_is_no_secret(device: CudaDevice) -> None:
    """torch hands out 32 streams, then the same ones again: two lanes of one run one after another."""
    lanes = [device.lane(f"lane{i}") for i in range(POOLED_STREAMS)]
    with pytest.warns(RuntimeWarning, match=f"lane 'more' is one more than the {POOLED_STREAMS} streams"):
        device.lane("more")
    assert len({lane.stream.cuda_stream for lane in lanes}) == POOLED_STREAMS  # type: ignore[attr-defined]
