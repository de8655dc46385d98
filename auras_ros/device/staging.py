"""Copies between the host and fixed buffers on a device, as stages on a lane, so that other lanes run meanwhile.

A GPU copies asynchronously only from and to page-locked memory; with other memory the host waits for the copy. So the
host writes and reads staging buffers, and a copy is a stage like any other: launched after marks, returning a mark. On
a CPU it is a plain copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from auras_ros.device.lane import Device, Lane, Mark

if TYPE_CHECKING:
    from torch import Tensor

DEPTH = 2  # staging buffers: one is written while the other is copied


def host_twin(buffer: Tensor) -> Tensor:
    """Zeros on the host, of the buffer's shape and type; page-locked if the buffer is on a GPU."""
    import torch

    return torch.zeros(buffer.shape, dtype=buffer.dtype, pin_memory=buffer.is_cuda)


class Upload:
    """Copies values from the host into the buffers `into`, by stages named `name` on `lane`. One caller at a time."""

    def __init__(self, name: str, device: Device, lane: Lane, into: Sequence[Tensor]) -> None:
        self._name, self._lane = name, lane
        self._staged = [[host_twin(each) for each in into] for _ in range(DEPTH)]
        for staged in self._staged:
            _copy(staged, into)  # capturing runs the copy, which must not change the buffers
        self._stages = [device.capture(name, partial(_copy, into, staged), lane) for staged in self._staged]
        self._marks: list[Mark | None] = [None] * DEPTH
        self._sent = 0

    def send(self, values: Sequence[Tensor]) -> Mark:
        """Launch the copy of the values; the caller may use `values` again when this returns. Nothing may still read
        the buffers. Waits for the copy before the last one, and raises its failure. Raises ValueError if the shapes are
        not those of the buffers."""
        at = self._sent % DEPTH
        copied = self._marks[at]
        if copied is not None:
            copied.wait()
        for staged, value in zip(self._staged[at], values, strict=True):
            if staged.shape != value.shape:
                raise ValueError(f"stage {self._name!r}: {list(value.shape)}, expected {list(staged.shape)}")
            staged.copy_(value)
        self._marks[at] = mark = self._lane.launch(self._stages[at])
        self._sent += 1
        return mark


class Download:
    """The result of `give` on the host, computed and copied by one stage. like: a tensor of its shape, type and device.
    One caller at a time."""

    def __init__(self, name: str, device: Device, lane: Lane, give: Callable[[], Tensor], like: Tensor) -> None:
        self._lane, self._host = lane, host_twin(like)
        self._stage = device.capture(name, lambda: _copy([self._host], [give()]), lane)
        self._mark: Mark | None = None

    def launch(self, after: Sequence[Mark] = ()) -> Mark:
        """Launch the stage. It overwrites an earlier result that was not taken, as there is one buffer."""
        self._mark = self._lane.launch(self._stage, after)
        return self._mark

    def take(self) -> Tensor:
        """Wait for the last launch and return a copy of its result. Raises RuntimeError if nothing was launched."""
        if self._mark is None:
            raise RuntimeError("nothing was launched")
        self._mark.wait()
        return self._host.clone()


def _copy(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for target, value in zip(into, values, strict=True):
        target.copy_(value, non_blocking=True)
