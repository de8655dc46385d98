"""CUDA's driver API as cuda-python has it, as far as partitions use it, beside the stand-in for `torch.cuda`.

It refuses what the driver's documentation refuses: calls before `cuInit`, sizes beyond the input, an input that is
itself the outcome of a split, descriptors of resources of different splits, a green context without its required flag,
streams that would block, whatever has been destroyed. Like the driver it rounds sizes up; from CUDA 13 on, where the
driver says what the granularity is, it refuses other sizes, because users report that of some drivers. SMs are
numbered, so that a test can see which ones a part has. `left` says what nobody destroyed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.device.fake_cuda import Gpu, Op, Stream

Key = TypeVar("Key")


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915
    CUDA_ERROR_STREAM_DETACHED = 917


class CUdevResourceType(IntEnum):
    CU_DEV_RESOURCE_TYPE_INVALID = 0
    CU_DEV_RESOURCE_TYPE_SM = 1


SM, INVALID = CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM, CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID


class DriverError(Exception):
    def __init__(self, result: CUresult) -> None:
        super().__init__(result.name)
        self.result = result


def refuse(when: bool, why: str = "INVALID_VALUE") -> None:
    if when:
        raise DriverError(CUresult[f"CUDA_ERROR_{why}"])


@dataclass(eq=False)
class Resource:
    """origin: the split that it comes from; None: the device or a context was asked for it."""

    sms: frozenset[int]
    type: CUdevResourceType = SM
    origin: object = None
    sm: SimpleNamespace = field(default_factory=SimpleNamespace)


@dataclass(eq=False)
class GreenContext:
    sms: frozenset[int]
    destroyed: bool = False


class DriverStream(Stream):
    """A stream with a handle. context: whose SMs its kernels may use; None: all of the device."""

    def __init__(self, gpu: Gpu, handle: int, context: GreenContext | None) -> None:
        super().__init__(gpu)
        self.cuda_stream, self.context = handle, context
        self.destroyed = False

    @property
    def queue(self) -> list[Op]:
        refuse(self.destroyed, "INVALID_HANDLE")
        refuse(self.context is not None and self.context.destroyed, "STREAM_DETACHED")
        return self._queue

    @queue.setter
    def queue(self, value: list[Op]) -> None:
        self._queue = value


class FakeDriver(ModuleType):
    """step, least: granularity and smallest size of a part. version: of the driver; from CUDA 13 on its resources say
    what the granularity is."""

    CUresult, CUdevResourceType = CUresult, CUdevResourceType

    def __init__(self, gpu: Gpu, sms: int = 132, step: int = 8, least: int = 8, version: int = 13000) -> None:
        super().__init__("cuda.bindings.driver")
        self.gpu, self.sms, self.step, self.least, self.version = gpu, frozenset(range(sms)), step, least, version
        self.initialised, self.of_thread = False, threading.local()
        self.contexts: list[GreenContext] = []
        self.retained = 0
        self.calls: list[str] = []

    # -- the functions: each returns its status and its outcomes, as the bindings do

    def cuDriverGetVersion(self) -> tuple[Any, ...]:
        return CUresult.CUDA_SUCCESS, self.version

    def cuInit(self, Flags: int) -> tuple[Any, ...]:  # noqa: N803  (the bindings' own names)
        self.initialised = Flags == 0
        return (CUresult.CUDA_SUCCESS if self.initialised else CUresult.CUDA_ERROR_INVALID_VALUE,)

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        return self._answer(1, lambda: (self._device(ordinal),))

    def cuDeviceGetDevResource(self, device: int, typename: CUdevResourceType) -> tuple[Any, ...]:
        def run() -> tuple[Any, ...]:
            self._device(device)
            if not isinstance(typename, CUdevResourceType):
                raise TypeError("Argument 'typename' is not instance of 'CUdevResourceType'")
            refuse(typename is not SM, "INVALID_RESOURCE_TYPE")
            return (self._resource(self.sms),)

        return self._answer(1, run)

    def cuDevSmResourceSplitByCount(self, nbGroups: int, input_: Resource, flags: int, minCount: int) -> Any:  # noqa: N803
        def run() -> tuple[Any, ...]:
            refuse(input_.type is not SM, "INVALID_RESOURCE_TYPE")
            refuse(input_.origin is not None, "INVALID_RESOURCE_CONFIGURATION")
            refuse(not 0 <= minCount <= len(input_.sms) or flags not in (0, 1, 2))
            count = max(self.least, -(-minCount // self.step) * self.step)
            refuse(self.version >= 13000 and count != minCount, "INVALID_RESOURCE_CONFIGURATION")
            made = min(nbGroups, len(input_.sms) // count)
            refuse(nbGroups > 0 and made == 0, "INVALID_RESOURCE_CONFIGURATION")
            numbers, split = sorted(input_.sms), object()
            groups = [
                self._resource(frozenset(numbers[number * count : (number + 1) * count]), split)
                for number in range(made)
            ]
            return groups, made, self._resource(frozenset(numbers[made * count :]), split)

        return self._answer(3, run)

    def cuDevResourceGenerateDesc(self, resources: list[Resource], nbResources: int) -> tuple[Any, ...]:  # noqa: N803
        def run() -> tuple[Any, ...]:
            refuse(nbResources < 1 or nbResources != len(resources))
            refuse(any(each.type is not SM for each in resources), "INVALID_RESOURCE_TYPE")
            different = len({id(each.origin) for each in resources}) > 1 or (
                nbResources > 1 and not resources[0].origin
            )
            refuse(different, "INVALID_RESOURCE_CONFIGURATION")
            return (frozenset[int]().union(*(each.sms for each in resources)),)

        return self._answer(1, run)

    def cuGreenCtxCreate(self, desc: frozenset[int], dev: int, flags: int) -> tuple[Any, ...]:
        def run() -> tuple[Any, ...]:
            self._device(dev)
            refuse(flags != 1 or not isinstance(desc, frozenset))
            self.contexts.append(GreenContext(desc))
            return (self.contexts[-1],)

        return self._answer(1, run)

    def cuGreenCtxStreamCreate(self, greenCtx: GreenContext, flags: int, priority: int) -> tuple[Any, ...]:  # noqa: N803
        def run() -> tuple[Any, ...]:
            refuse(greenCtx.destroyed, "INVALID_CONTEXT")
            refuse(flags != 1)
            return (self._stream(greenCtx),)

        return self._answer(1, run)

    def cuGreenCtxDestroy(self, hCtx: GreenContext) -> tuple[Any, ...]:  # noqa: N803
        def run() -> tuple[Any, ...]:
            refuse(hCtx.destroyed, "CONTEXT_IS_DESTROYED")
            hCtx.destroyed = True
            return ()

        return self._answer(0, run)

    def cuDevicePrimaryCtxRetain(self, dev: int) -> tuple[Any, ...]:
        def run() -> tuple[Any, ...]:
            self._device(dev)
            self.retained += 1
            return ("primary",)

        return self._answer(1, run)

    def cuDevicePrimaryCtxRelease(self, dev: int) -> tuple[Any, ...]:
        def run() -> tuple[Any, ...]:
            refuse(self.retained == 0, "INVALID_CONTEXT")
            self.retained -= 1
            return ()

        return self._answer(0, run)

    def cuCtxSetCurrent(self, ctx: object) -> tuple[Any, ...]:
        def run() -> tuple[Any, ...]:
            self.of_thread.context = ctx
            return ()

        return self._answer(0, run)

    def cuStreamCreate(self, Flags: int) -> tuple[Any, ...]:  # noqa: N803
        def run() -> tuple[Any, ...]:
            refuse(getattr(self.of_thread, "context", None) is None or not self.retained, "INVALID_CONTEXT")
            refuse(Flags not in (0, 1))
            return (self._stream(None),)

        return self._answer(1, run)

    def cuStreamDestroy(self, hStream: int) -> tuple[Any, ...]:  # noqa: N803
        def run() -> tuple[Any, ...]:
            stream = self.gpu.external.get(hStream)
            refuse(not isinstance(stream, DriverStream) or stream.destroyed, "INVALID_HANDLE")
            assert isinstance(stream, DriverStream)
            assert not stream._queue, "destroyed with work under way"
            stream.destroyed = True
            self.gpu.streams.remove(stream)
            return ()

        return self._answer(0, run)

    # -- for the tests

    def left(self) -> list[object]:
        """Streams and contexts that nobody has destroyed, and contexts that are still retained."""
        streams = [each for each in self.gpu.external.values() if isinstance(each, DriverStream) and not each.destroyed]
        return [*streams, *(each for each in self.contexts if not each.destroyed), *["primary"] * self.retained]

    def _answer(self, outcomes: int, run: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """As the bindings do: the status, then the outcomes, which are None where the status is an error."""
        try:
            refuse(not self.initialised, "NOT_INITIALIZED")
            return CUresult.CUDA_SUCCESS, *run()
        except DriverError as error:
            return error.result, *[None] * outcomes

    def _device(self, number: int) -> int:
        refuse(number != 0, "INVALID_DEVICE")
        return number

    def _resource(self, sms: frozenset[int], origin: object = None) -> Resource:
        says = {"minSmPartitionSize": self.least, "smCoscheduledAlignment": self.step} if self.version >= 13000 else {}
        return Resource(sms, SM if sms else INVALID, origin, SimpleNamespace(smCount=len(sms), **says))

    def _stream(self, context: GreenContext | None) -> int:
        handle = 0x1000 + len(self.gpu.external)
        self.gpu.external[handle] = DriverStream(self.gpu, handle, context)
        return handle


def install_driver(patch: pytest.MonkeyPatch, gpu: Gpu, **how: int) -> FakeDriver:
    """`from cuda.bindings import driver` gives this one until `patch` is undone."""
    made = FakeDriver(gpu, **how)
    bindings: Any = ModuleType("cuda.bindings")
    bindings.driver = made
    patch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    patch.setitem(sys.modules, "cuda.bindings", bindings)
    return made
