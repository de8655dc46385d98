"""Green contexts on a real GPU. What can be had without one is in test_cuda_partition.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from auras_ros.device import DeviceError, Spans
from auras_ros.device.cuda import CudaDevice
from auras_ros.device.cuda_driver import CudaDriver
from auras_ros.device.cuda_partition import CudaPartitions
from auras_ros.device.partition import DevicePartition

pytestmark = pytest.mark.gpu
WAIT_S = 60.0


@pytest.fixture
def spans() -> Spans:
    return Spans(1024)


@pytest.fixture
def device(spans: Spans) -> Iterator[CudaDevice]:
    made = CudaDevice(spans)
    yield made
    made.close()


@pytest.fixture
def parts(device: CudaDevice) -> Iterator[CudaPartitions]:
    made = CudaPartitions(device, (16, 32))
    yield made
    made.close()


def all_parts(parts: CudaPartitions) -> list[DevicePartition]:
    each = [part(size) for size in parts.sizes for part in (parts.first, parts.second)]
    return [*each, parts.whole()]


def captured(device: CudaDevice, part: DevicePartition, body: Callable[[], object], name: str = "stage") -> Any:
    """A call launches the stage from the part's own thread, and waits for it."""
    lane = part.lane(name)
    stage = device.capture(name, body, lane)  # type: ignore[arg-type]
    assert stage.captured
    return lambda: part.executor(name).submit(lambda: lane.launch(stage).wait()).result(WAIT_S)


def test_the_parts_of_a_split_are_all_sms(device: CudaDevice, parts: CudaPartitions) -> None:
    assert parts.units == torch.cuda.get_device_properties(device.tensors).multi_processor_count
    assert parts.sizes
    for size in parts.sizes:
        assert parts.first(size).units == size
        assert parts.first(size).units + parts.second(size).units == parts.units


def test_a_stage_computes_the_same_on_every_part(device: CudaDevice, parts: CudaPartitions) -> None:
    """Matrix products, whose libraries choose kernels and workspaces by the stream."""
    x, out = torch.randn(256, 1024, device=device.tensors), torch.zeros(256, 1024, device=device.tensors)
    weight = torch.randn(1024, 1024, device=device.tensors) / 32

    def body() -> None:
        out.copy_(torch.tanh(torch.tanh(x @ weight) @ weight))

    body()
    expected = out.clone()
    for part in all_parts(parts):
        run = captured(device, part, body)
        out.zero_()
        torch.cuda.synchronize()
        run()
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_kernels_run_on_the_parts_sms_alone(device: CudaDevice, parts: CudaPartitions) -> None:
    """In a graph, and launched one by one from the part's thread."""
    pytest.importorskip("triton")
    from tests.device.sm_numbers import BLOCKS, note_sms

    out = torch.full((BLOCKS,), -1, dtype=torch.int32, device=device.tensors)

    def seen(run: Callable[[], object]) -> set[int]:
        out.fill_(-1)
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
        return set(out.tolist())

    for size in parts.sizes:
        found = []
        for part in (parts.first(size), parts.second(size)):
            graph = seen(captured(device, part, lambda: note_sms(out)))
            eager = seen(lambda part=part: part.executor("stage").submit(note_sms, out).result(WAIT_S))
            assert len(graph | eager) <= part.units
            found.append(graph | eager)
        assert found[0] & found[1] == set()
        assert -1 not in found[0] | found[1]


def test_both_parts_of_a_split_are_at_work_at_once(device: CudaDevice, parts: CudaPartitions, spans: Spans) -> None:
    """Each stage fills its part for a while, so one that waited for the other would begin after its end."""
    size = parts.sizes[0]
    values = [torch.randn(2048, 2048, device=device.tensors) / 45 for _ in range(2)]

    def body(value: torch.Tensor) -> None:
        for _ in range(50):
            value.copy_(torch.tanh(value @ value))

    lanes = [part.lane("stage") for part in (parts.first(size), parts.second(size))]
    stages = [
        device.capture("stage", lambda value=value: body(value), lane)  # type: ignore[misc]
        for lane, value in zip(lanes, values, strict=True)
    ]
    torch.cuda.synchronize()
    for mark in [lane.launch(stage) for lane, stage in zip(lanes, stages, strict=True)]:
        mark.wait()
    device.collect()
    one, other = spans.rows()
    assert other.start_ns < one.end_ns
    assert one.lane != other.lane


def test_a_second_owner_is_refused_and_a_later_one_is_not(device: CudaDevice) -> None:
    first = CudaPartitions(device, (16,), owner="first")
    with pytest.raises(DeviceError, match="'second' cannot divide it: 'first' has divided it already"):
        CudaPartitions(device, (16,), owner="second")
    first.close()
    again = CudaPartitions(device, (16,), owner="second")
    out = torch.zeros(8, device=device.tensors)
    captured(device, again.first(again.sizes[0]), lambda: out.add_(1))()
    again.close()
    assert out.min() >= 1


def test_a_size_that_leaves_nothing_is_refused(device: CudaDevice) -> None:
    units = torch.cuda.get_device_properties(device.tensors).multi_processor_count
    for size in (0, units, units + 1):
        with pytest.raises(DeviceError, match=f"a part of {size} of {units} SMs leaves nothing"):
            CudaPartitions(device, (size,))


def test_memory_does_not_grow_with_splits_that_come_and_go(device: CudaDevice) -> None:
    def round_of() -> None:
        made = CudaPartitions(device, (16,))
        for part in all_parts(made):
            part.executor("stage").submit(lambda: None).result(WAIT_S)
        made.close()

    round_of()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info(device.tensors)[0]
    for _ in range(10):
        round_of()
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info(device.tensors)[0] < 64 << 20


def test_the_driver_names_what_it_refuses(device: CudaDevice) -> None:
    with ExitStack() as held:
        driver = CudaDriver(device.tensors, held)
        with pytest.raises(DeviceError, match="cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"):
            driver.call("cuDeviceGet", 4096)
