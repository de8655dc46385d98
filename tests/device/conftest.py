"""Devices that close themselves, and a limit to every test, so that a deadlock is a failure and not a hang."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator

import pytest

from auras_ros.clock import VirtualClock
from auras_ros.device import Device, Lane, Mark, Spans
from auras_ros.device.cpu import CpuDevice
from tests.device.null_device import NullDevice

LIMIT_S = 120.0  # the tests take milliseconds; a busy machine may have its time


class TenEach(dict[str, int]):
    """Every stage takes 10 ns of virtual time, whatever its name."""

    def get(self, key: str, default: int | None = None) -> int:  # type: ignore[override]
        return 10


class Rig:
    """One kind of device, its spans, and lanes and stages in one call each."""

    def __init__(self, kind: str) -> None:
        self.kind, self.spans = kind, Spans(64)
        self.device = self._make()

    def lane(self, name: str) -> Lane:
        return self.device.lane(name, threads=1) if self.kind == "thread" else self.device.lane(name)

    def stage(self, lane: Lane, name: str, body: Callable[[], object]) -> Callable[..., Mark]:
        """Captures `body`; a call launches it after the marks that it is given."""
        captured = self.device.capture(name, body, lane)  # type: ignore[arg-type]
        return lambda *after: lane.launch(captured, after)

    def _make(self) -> Device:
        if self.kind == "null":
            return NullDevice(VirtualClock(), TenEach(), self.spans)
        if self.kind == "cuda":
            from auras_ros.device.cuda import CudaDevice

            return CudaDevice(self.spans)
        return CpuDevice(self.spans)


@pytest.fixture(autouse=True)
def no_deadlock() -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    made = CpuDevice()
    yield made
    made.close()


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """`parametrize("rig", [...], indirect=True)` with inline, thread, null or cuda."""
    made = Rig(request.param)
    yield made
    made.device.close()
