"""Partitions of a GPU on a stand-in for its driver, which refuses what the driver refuses (fake_driver.py).

On a real GPU: test_cuda_partition_gpu.py. Guards: parts that share SMs; a stage that is captured or replayed on another
part's stream; work of an executor's thread on the whole device; a second split of the GPU beside the first; streams and
contexts that are left, destroyed in the wrong order or while work is under way; a size that the driver has changed.
"""

from __future__ import annotations

import ctypes.util
import inspect
import platform
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from auras_ros.device import DeviceError
from auras_ros.device.cuda import POOLED_STREAMS, CudaDevice
from auras_ros.device.cuda_partition import CudaPartitions
from auras_ros.device.smctrl import KNOWN, REASON
from tests.device import fake_driver
from tests.device.fake_cuda import Gpu, install
from tests.device.fake_driver import SM, CUresult, FakeDriver, install_driver

WAIT_S = 30.0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    return install(monkeypatch)


@pytest.fixture
def driver(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install_driver(monkeypatch, gpu)


@pytest.fixture
def parts(driver: FakeDriver) -> Iterator[CudaPartitions]:
    """Of 132 SMs, with a granularity of 8."""
    made = CudaPartitions(CudaDevice(), (24, 64))
    yield made
    made.close()


def sms(part: Any, name: str = "stage") -> frozenset[int]:
    context = part.lane(name).stream.context
    return frozenset(range(132)) if context is None else context.sms


def test_the_parts_of_a_split_share_no_sm_and_leave_none_out(parts: CudaPartitions) -> None:
    assert (parts.units, parts.sizes) == (132, (24, 64))
    for size in parts.sizes:
        first, second = sms(parts.first(size)), sms(parts.second(size))
        assert (len(first), first & second, len(first | second)) == (size, frozenset(), 132)
        assert (parts.first(size).units, parts.second(size).units) == (size, 132 - size)
    names = [part.name for part in (parts.first(24), parts.second(24), parts.whole())]
    assert names == ["first 24 of 132 SMs", "second 108 of 132 SMs", "132 SMs"]


def test_a_stage_is_captured_for_each_part_and_replayed_on_its_stream(gpu: Gpu, parts: CudaPartitions) -> None:
    device, log = parts._device, list[str]()
    for part in (parts.first(24), parts.second(24), parts.first(64), parts.whole()):
        lane: Any = part.lane("decode")
        stage = device.capture("decode", lambda: gpu.kernel(lambda: log.append("ran")), lane)
        assert stage.captured
        assert gpu.captures[-1]["stream"] is lane.stream
        log.clear()
        mark = lane.launch(stage)
        assert lane.stream.queue
        mark.wait()
        assert log == ["ran"]
    assert len({id(each["stream"]) for each in gpu.captures}) == len({each["pool"] for each in gpu.captures}) == 4
    with pytest.raises(DeviceError, match="was not captured for lane 'decode, first 24 of 132 SMs'"):
        parts.first(24).lane("decode").launch(stage)


def test_the_work_of_an_executors_thread_is_on_its_part(gpu: Gpu, parts: CudaPartitions) -> None:
    """Also what is not captured. The threads of others are not moved."""
    part = parts.first(24)
    current = part.executor("vision").submit(lambda: gpu.current).result(WAIT_S)
    assert current is part.lane("vision").stream  # type: ignore[attr-defined]
    assert current is not part.lane("decode").stream  # type: ignore[attr-defined]
    assert current.context.sms == sms(part)
    assert gpu.current is gpu.default
    assert parts.whole().executor("vision").submit(lambda: gpu.current).result(WAIT_S) is not gpu.default


def test_a_stage_and_the_work_around_it_are_in_order(gpu: Gpu, parts: CudaPartitions) -> None:
    """The lane's stream is the thread's own: nothing has to be waited for."""
    part, log = parts.second(64), list[str]()
    lane = part.lane("decode")
    stage = parts._device.capture("decode", lambda: gpu.kernel(lambda: log.append("stage")), lane)
    log.clear()

    def forward() -> None:
        gpu.kernel(lambda: log.append("before"))
        mark = lane.launch(stage)
        gpu.kernel(lambda: log.append("after"))
        mark.wait()
        gpu.current.synchronize()

    part.executor("decode").submit(forward).result(WAIT_S)
    assert log == ["before", "stage", "after"]


def test_lanes_of_parts_take_none_of_torchs_streams(parts: CudaPartitions) -> None:
    """torch has 32; beyond them it warns that lanes take turns, and these do not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(POOLED_STREAMS + 1):
            parts.first(24).lane(str(number))
        for number in range(POOLED_STREAMS):
            parts._device.lane(str(number))
    with pytest.warns(RuntimeWarning, match="lane 'more' is one more than the 32 streams"):
        parts._device.lane("more")


# -- sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "sms", "step", "least", "asked", "got"),
    [
        (13000, 132, 8, 8, (1, 8, 20, 24, 124), (8, 24, 128)),  # Hopper
        (12090, 132, 8, 8, (1, 8, 20, 24, 124), (8, 24, 128)),  # and a driver that does not say how it rounds
        (13000, 84, 2, 4, (1, 5, 18, 36, 82), (4, 6, 18, 36, 82)),  # A6000
        (12050, 84, 2, 4, (36, 5), (6, 36)),
        (13000, 132, 8, 8, (), ()),
    ],
)
def test_sizes_are_those_that_the_driver_gives(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, version: int, sms: int, step: int, least: int, asked: tuple[int, ...],
    got: tuple[int, ...],
) -> None:  # fmt: skip
    driver = install_driver(monkeypatch, gpu, sms=sms, step=step, least=least, version=version)
    parts = CudaPartitions(CudaDevice(), asked)
    assert parts.sizes == got
    assert [parts.second(size).units for size in got] == [sms - size for size in got]
    assert len(driver.contexts) == 2 * len(got)
    parts.close()


@pytest.mark.parametrize("size", [-8, 0, 125, 132, 140])
@pytest.mark.parametrize("version", [12090, 13000])
def test_a_size_that_leaves_nothing_is_named(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, size: int, version: int
) -> None:
    """125 of 128 SMs become 128."""
    driver = install_driver(monkeypatch, gpu, sms=128, version=version)
    with pytest.raises(DeviceError, match=f"cuda:0: a part of {size} of 128 SMs leaves nothing to one of the two"):
        CudaPartitions(CudaDevice(), (24, size))
    assert driver.left() == []
    CudaPartitions(CudaDevice(), (24,)).close()


def test_a_size_that_was_not_prepared_is_named(parts: CudaPartitions) -> None:
    with pytest.raises(DeviceError, match=r"a part of 32 of 132: prepared are \(24, 64\)"):
        parts.first(32)


# -- one owner, and the end ------------------------------------------------------------------------------


def test_a_process_divides_a_gpu_once(driver: FakeDriver) -> None:
    device = CudaDevice()
    mine = CudaPartitions(device, (24,), owner="engine")
    with pytest.raises(DeviceError, match="cuda:0: 'agent' cannot divide it: 'engine' has divided it already"):
        CudaPartitions(device, (64,), owner="agent")
    mine.close()
    CudaPartitions(device, (64,), owner="agent").close()
    assert driver.left() == []


def test_closing_waits_for_the_work_and_destroys_everything_in_order(gpu: Gpu, driver: FakeDriver) -> None:
    """The stand-in's streams may not be destroyed with work under way, nor used when their context is gone."""
    device, log = CudaDevice(), list[str]()
    parts = CudaPartitions(device, (24, 64))
    two = [parts.first(24), parts.second(64)]
    lanes = [part.lane("decode") for part in two]
    stages = [device.capture("decode", lambda: gpu.kernel(lambda: log.append("stage")), lane) for lane in lanes]
    log.clear()
    for part, lane, stage in zip(two, lanes, stages, strict=True):
        lane.launch(stage)
        part.executor("vision").submit(gpu.kernel, lambda: log.append("eager")).result(WAIT_S)
    assert log == []
    parts.close()
    assert sorted(log) == ["eager", "eager", "stage", "stage"]
    assert driver.left() == []
    with pytest.raises(DeviceError, match="lane 'decode, second 68 of 132 SMs' is closed"):
        lane.launch(stage)
    with pytest.raises(DeviceError, match="'vision': partition 'first 24 of 132 SMs' is closed"):
        parts.first(24).executor("vision")
    parts.close()
    device.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("vision")]


def test_closing_waits_for_what_no_lane_has_launched(gpu: Gpu, driver: FakeDriver) -> None:
    parts, log = CudaPartitions(CudaDevice(), (24,)), list[str]()
    parts.second(24).executor("vision").submit(gpu.kernel, lambda: log.append("eager")).result(WAIT_S)
    assert log == []
    parts.close()
    assert log == ["eager"]
    assert driver.left() == []


def test_a_device_may_be_closed_first(driver: FakeDriver) -> None:
    device = CudaDevice()
    parts = CudaPartitions(device, (24,))
    parts.first(24).lane("decode")
    device.close()
    parts.close()
    assert driver.left() == []


@pytest.mark.parametrize("name", ["cuDeviceGetDevResource", "cuDevResourceGenerateDesc", "cuGreenCtxCreate"])
def test_what_the_driver_refuses_is_named_and_nothing_is_left(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The second time: after something has been made."""
    right: Callable[..., Any] = getattr(driver, name)
    answers = iter([] if name == "cuDeviceGetDevResource" else [right])

    def fail(*arguments: Any) -> Any:
        return next(answers, lambda *_: (CUresult.CUDA_ERROR_INVALID_DEVICE, None))(*arguments)

    monkeypatch.setattr(driver, name, fail)
    with pytest.raises(DeviceError, match=f"cuda:0: {name}: CUDA_ERROR_INVALID_DEVICE"):
        CudaPartitions(CudaDevice(), (24,))
    assert driver.left() == []
    monkeypatch.setattr(driver, name, right)
    CudaPartitions(CudaDevice(), (24,)).close()


def test_a_stream_that_the_driver_refuses_is_named(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = CudaPartitions(CudaDevice(), (24,))
    monkeypatch.setattr(driver, "cuGreenCtxStreamCreate", lambda *_: (CUresult.CUDA_ERROR_INVALID_CONTEXT, None))
    for make in (parts.first(24).executor, parts.first(24).lane):
        with pytest.raises(DeviceError, match="cuGreenCtxStreamCreate: CUDA_ERROR_INVALID_CONTEXT"):
            make("decode")
    parts.close()
    assert driver.left() == []


def test_missing_bindings_are_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match="cuda:0: partitions need the package cuda-python"):
        CudaPartitions(CudaDevice(), (24,))


def test_bindings_without_a_function_are_named(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeDriver, "cuGreenCtxCreate")
    with pytest.raises(DeviceError, match=r"cuda:0: cuGreenCtxCreate: .*has no attribute"):
        CudaPartitions(CudaDevice(), (24,))


# -- drivers without green contexts ----------------------------------------------------------------------


class FakeSmctrl:
    """libsmctrl, for a GPU of so many pairs of SMs. masks: by a stream's handle; a set bit disables a pair."""

    def __init__(self, tpcs: int) -> None:
        self.masks: dict[int, int] = {}

        def set_mask(stream: int, mask: int) -> None:
            self.masks[stream] = mask

        def get_info(count: Any, device: int) -> int:
            count._obj.value = tpcs
            return device

        self.libsmctrl_set_stream_mask, self.libsmctrl_get_tpc_info_cuda = set_mask, get_info


@pytest.fixture
def old(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=84))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so")
    return install_driver(monkeypatch, gpu, sms=84, version=12020)


def test_an_old_driver_has_libsmctrls_masks(gpu: Gpu, old: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A6000: 42 pairs. Stages are run and not captured: a graph might forget the mask."""
    library = FakeSmctrl(42)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    device, log = CudaDevice(), list[str]()
    parts = CudaPartitions(device, (17, 36))
    assert (parts.units, parts.sizes, parts.second(18).units) == (84, (18, 36), 66)
    masks = []
    for part in (parts.first(18), parts.second(18)):
        with ThreadPoolExecutor(1) as other:  # a thread that has called nothing of CUDA yet
            lane: Any = other.submit(part.lane, "decode").result(WAIT_S)
        stage = device.capture("decode", lambda: gpu.kernel(lambda: log.append("ran")), lane)
        assert not stage.captured
        log.clear()
        lane.launch(stage).wait()
        assert log == ["ran"]
        masks.append(library.masks[lane.stream.cuda_stream])
    assert device.uncaptured == {"decode": (REASON,)}
    assert [42 - (mask & 2**42 - 1).bit_count() for mask in masks] == [9, 33]
    assert masks[0] ^ masks[1] == 2**64 - 1
    parts.close()
    assert old.left() == []


@pytest.mark.parametrize(
    ("tpcs", "size", "said"),
    [
        (66, 8, r"CUDA 12.2 has no green contexts, and libsmctrl masks 2 to 64 pairs of SMs, not 66"),
        (1, 8, r"not 1$"),
        (42, 84, r"a part of 84 of 84 SMs leaves nothing"),
        (42, 0, r"a part of 0 of 84 SMs leaves nothing"),
    ],
)
def test_what_masks_cannot_do_is_named(
    old: FakeDriver, monkeypatch: pytest.MonkeyPatch, tpcs: int, size: int, said: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeSmctrl(tpcs))
    with pytest.raises(DeviceError, match=said):
        CudaPartitions(CudaDevice(), (size,))
    assert old.left() == []


def test_without_the_library_it_is_named(old: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(
        DeviceError, match=r"cuda:0: a driver for CUDA 12\.2 has no green contexts, and there is no libsm"
    ):
        CudaPartitions(CudaDevice(), (18,))


@pytest.mark.parametrize(("version", "machine"), [(KNOWN[0] - 10, "x86_64"), (12020, "aarch64")])
def test_the_library_is_asked_for_nothing_where_its_offsets_are_unknown(
    old: FakeDriver, monkeypatch: pytest.MonkeyPatch, version: int, machine: str
) -> None:
    """It would end the process, or write into the wrong place."""

    def load(_: str) -> object:
        raise AssertionError("loaded")

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    old.version = version
    with pytest.raises(DeviceError, match=r"libsmctrl's offsets are those of CUDA 11\.0 to 12\.4 on x86-64"):
        CudaPartitions(CudaDevice(), (18,))


# -- the stand-in ----------------------------------------------------------------------------------------


def test_the_stand_in_has_the_bindings_names_parameters_and_numbers(driver: FakeDriver) -> None:
    real = sys.modules.get("cuda.bindings.driver") or _real_bindings()
    for name in [name for name in vars(FakeDriver) if name.startswith("cu")]:
        theirs = inspect.signature(getattr(real, name)).parameters
        assert list(inspect.signature(getattr(driver, name)).parameters) == list(theirs), name
    for ours in (fake_driver.CUresult, fake_driver.CUdevResourceType):
        for member in ours:
            assert int(getattr(getattr(real, ours.__name__), member.name)) == member
    assert int(real.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM) == 1
    assert int(real.CUstream_flags.CU_STREAM_NON_BLOCKING) == 1


def _real_bindings() -> ModuleType | Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "cuda"]:
            patch.delitem(sys.modules, name)
        return pytest.importorskip("cuda.bindings.driver")


def test_the_stand_in_refuses_what_the_driver_refuses(driver: FakeDriver) -> None:
    """Each by the status that the driver's documentation names."""
    assert driver.cuDeviceGet(0) == (CUresult.CUDA_ERROR_NOT_INITIALIZED, None)
    assert driver.cuInit(1) == (CUresult.CUDA_ERROR_INVALID_VALUE,)
    assert driver.cuInit(0) == (CUresult.CUDA_SUCCESS,)
    assert driver.cuDeviceGet(1)[0] is CUresult.CUDA_ERROR_INVALID_DEVICE
    with pytest.raises(TypeError):
        driver.cuDeviceGetDevResource(0, 1)  # type: ignore[arg-type]
    whole = driver.cuDeviceGetDevResource(0, SM)[1]
    split = driver.cuDevSmResourceSplitByCount
    assert split(1, whole, 0, 133)[0] is CUresult.CUDA_ERROR_INVALID_VALUE
    assert split(1, whole, 0, 130)[0] is CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    assert split(1, whole, 0, 20)[0] is CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    assert split(0, whole, 0, 24)[1:3] == ([], 0)
    _, (group,), made, rest = split(1, whole, 0, 24)
    assert (made, len(group.sms), len(rest.sms), group.sms & rest.sms) == (1, 24, 108, frozenset())
    assert split(1, group, 0, 8)[0] is CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    assert split(1, rest, 0, 8)[0] is CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    describe = driver.cuDevResourceGenerateDesc
    other = split(1, whole, 0, 8)[3]
    assert describe([group, other], 2)[0] is CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    assert describe([group], 2)[0] is CUresult.CUDA_ERROR_INVALID_VALUE
    description = describe([group, rest], 2)[1]
    assert driver.cuGreenCtxCreate(description, 0, 0)[0] is CUresult.CUDA_ERROR_INVALID_VALUE
    context = driver.cuGreenCtxCreate(description, 0, 1)[1]
    assert driver.cuGreenCtxStreamCreate(context, 0, 0)[0] is CUresult.CUDA_ERROR_INVALID_VALUE
    stream = driver.cuGreenCtxStreamCreate(context, 1, 0)[1]
    assert driver.cuGreenCtxDestroy(context) == (CUresult.CUDA_SUCCESS,)
    assert driver.cuGreenCtxDestroy(context) == (CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED,)
    assert driver.cuGreenCtxStreamCreate(context, 1, 0)[0] is CUresult.CUDA_ERROR_INVALID_CONTEXT
    with pytest.raises(fake_driver.DriverError, match="STREAM_DETACHED"):
        driver.gpu.external[stream].put(lambda: None)
    assert driver.cuStreamDestroy(stream) == (CUresult.CUDA_SUCCESS,)
    assert driver.cuStreamDestroy(stream) == (CUresult.CUDA_ERROR_INVALID_HANDLE,)
    assert driver.cuStreamCreate(1)[0] is CUresult.CUDA_ERROR_INVALID_CONTEXT
