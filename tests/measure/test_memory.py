"""The frame loop keeps its memory, in every mode; and the measurement sees a loop that does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from mmap import mmap

import pytest
import torch

from auras_ros.device import make_device
from auras_ros.measure.executors import Bench
from auras_ros.measure.memory import Capturing, growth_per_chunk, resident_bytes, tensor_bytes
from auras_ros.measure.minutes import OverError
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched
from auras_ros.policies.architectures import make_policy

CPU = torch.device("cpu")
CHUNKS = 90
# One Python object kept a chunk is 56 bytes at least with what refers to it; interpreters cache a few hundred in all.
PYTHON_BYTES = 200.0
# An observation of the tiny policy is 13.5 KiB; allocators give and take some pages.
RESIDENT_BYTES = 6000.0
ATTEMPTS = 3
PLANS = [
    "ddpm2",
    "ddpm2,mode=dec",
    "ddpm2,mode=par,concurrency=2",
    "ddpm2,mode=auras,pp_generation=2",
    "ddpm2,mode=auras,fetch_offset=-1",
]


@pytest.fixture
def bench(tiny: str) -> Iterator[Bench]:
    """Two denoising steps: memory is a matter of frames, not of steps."""
    made = Bench(make_policy(tiny, seed=0, steps=2), "cpu", 0, most=2)
    yield made
    made.close()


@pytest.mark.parametrize("text", PLANS)
def test_the_frame_loop_does_not_grow(bench: Bench, text: str) -> None:
    """What is kept is kept each time; on a busy machine something that is made once may fall between two samples."""
    executor = bench.prepare(Plan.parse(text))
    for _ in range(ATTEMPTS):
        grown = growth_per_chunk(executor, bench.feed, CHUNKS)
        assert grown.chunks == CHUNKS
        if grown.python_bytes_per_chunk < PYTHON_BYTES and grown.resident_bytes_per_chunk < RESIDENT_BYTES:
            return
    pytest.fail(f"{ATTEMPTS} times in a row: {grown}")


def test_python_objects_that_are_kept_are_seen(bench: Bench) -> None:
    kept = []

    def latch(now_ns: int) -> Latched:
        kept.append({"a frame's worth": [now_ns]})
        return bench.feed(now_ns)

    assert growth_per_chunk(bench.prepare(Plan("ddpm2")), latch, CHUNKS).python_bytes_per_chunk > PYTHON_BYTES


def test_tensors_that_are_kept_are_seen(bench: Bench) -> None:
    """tracemalloc cannot see them: the resident set does. Each lies in pages of its own: what an allocator takes from
    memory that an earlier test gave back to it is resident already."""
    kept = []

    def latch(now_ns: int) -> Latched:
        kept.append(torch.frombuffer(mmap(-1, 32768), dtype=torch.float32).fill_(1.0))
        return bench.feed(now_ns)

    assert growth_per_chunk(bench.prepare(Plan("ddpm2")), latch, CHUNKS).resident_bytes_per_chunk > RESIDENT_BYTES


def test_the_resident_set_is_that_of_this_process() -> None:
    """Pages of its own: an allocator would hand out what an earlier test gave back, which is resident already."""
    before = resident_bytes()
    with mmap(-1, 50_000_000) as kept:
        kept.write(b"x" * len(kept))
        assert 40e6 < resident_bytes() - before < 150e6


def test_the_minutes_end_it(bench: Bench) -> None:
    """An executor without observations gave no chunk for five minutes. That there was no time is no failure."""
    with pytest.raises(OverError):
        growth_per_chunk(bench.prepare(Plan("ddpm2")), lambda now_ns: None, CHUNKS, None, time.monotonic() + 0.1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_stops_is_no_measurement(bench: Bench) -> None:
    def latch(now_ns: int) -> Latched:
        raise ArithmeticError("broken on purpose")

    with pytest.raises(RuntimeError, match="ddpm2: a worker failed"):
        growth_per_chunk(bench.prepare(Plan("ddpm2")), latch, CHUNKS)


def test_every_tensor_is_counted_once() -> None:
    before = tensor_bytes()
    one = torch.zeros(1000)
    views = [one[:10], one.view(10, 100)]
    assert tensor_bytes() - before == 4000
    other = torch.zeros(500, dtype=torch.float64)
    assert tensor_bytes() - before == 8000
    del one, views, other
    assert tensor_bytes() == before


def test_captures_are_counted_and_timed() -> None:
    device = Capturing(make_device("cpu"))
    lane, waits = device.lane("here"), threading.Event()
    device.capture("one", lambda: None, lane)
    lane.launch(device.capture("two", waits.set, lane)).wait()
    assert device.stages == 2
    assert waits.is_set()
    assert device.tensors == CPU
    device.close()
