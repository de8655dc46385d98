"""The cost of making an executor: time in captures, bytes of tensors, and GPU memory reserved by torch."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from auras_ros.device import Device, Lane, Reasons, Stage


class Capturing:
    """A device that counts its captures and adds up their time."""

    def __init__(self, inner: Device) -> None:
        self._inner = inner
        self.stages, self.capture_s = 0, 0.0

    @property
    def tensors(self) -> torch.device:
        return self._inner.tensors

    @property
    def uncaptured(self) -> Mapping[str, Reasons]:
        return self._inner.uncaptured

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        return self._inner.lane(name, cores, threads)

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        began_s = time.monotonic()
        try:
            return self._inner.capture(name, body, lane)
        finally:
            self.stages, self.capture_s = self.stages + 1, self.capture_s + time.monotonic() - began_s

    def close(self) -> None:
        self._inner.close()


@contextmanager
def growth(device: torch.device) -> Iterator[dict[str, int]]:
    """Filled at the end: growth of the bytes of tensors and of the GPU memory that torch has reserved.

    The allocator's cache is emptied at the start and at the end, so only memory in use is counted: tensors, and the
    memory that captured graphs hold for temporaries.
    """
    found: dict[str, int] = {}
    tensors, reserved = tensor_bytes(), reserved_bytes(device)
    yield found
    found |= {"tensor_bytes": tensor_bytes() - tensors, "reserved_bytes": reserved_bytes(device) - reserved}


def tensor_bytes() -> int:
    """Bytes of all tensors of this process; shared storage counts once."""
    gc.collect()
    kept = {}
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and not each.is_meta:
            storage = each.untyped_storage()
            kept[storage.device.type, storage.data_ptr()] = storage.nbytes()
    return sum(kept.values())


def reserved_bytes(device: torch.device) -> int:
    """GPU memory that torch has reserved and cannot release; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved(device))
