"""Memory growth of the running frame loop, in every mode; and the cost of making an executor: time in captures,
bytes of tensors, and GPU memory reserved by torch.

Two tools, because neither measures everything. tracemalloc counts Python's allocations exactly, but not the data of
tensors; the resident set includes everything, in pages, with the noise of two allocators. The loop is the real one,
with its threads.
"""

from __future__ import annotations

import gc
import math
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auras_ros.device import Device, Lane, Stage
from auras_ros.measure.minutes import OverError
from auras_ros.measure.running import Running
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.request import Emission, Latched

SAMPLES = 30
STATM = Path("/proc/self/statm")
LIMIT_S = 300.0


@dataclass(frozen=True)
class Growth:
    """Bytes per chunk, from the median of the second third of the samples to that of the last third."""

    chunks: int
    python_bytes_per_chunk: float
    resident_bytes_per_chunk: float
    device_bytes_per_chunk: float  # torch's own count on a GPU; 0 on the CPU
    python_peak_kib: float  # temporary Python memory between two samples


class _Sampler:
    """Takes a sample every few chunks. Its own memory is allocated at the start, so that it does not measure itself."""

    def __init__(self, chunks: int, device_bytes: Callable[[], int]) -> None:
        self._device_bytes = device_bytes
        self.over = threading.Event()
        self.peak_bytes = self.taken = 0
        self._samples = np.zeros((4, SAMPLES), np.int64)  # chunks; Python's bytes, resident ones, the device's
        self._every, self._count = max(1, chunks // SAMPLES), 0
        self._lock = threading.Lock()

    def emit(self, emission: Emission) -> None:
        with self._lock:
            self._count += 1
            if self.over.is_set() or self._count % self._every:
                return
            gc.collect()
            now, peak = tracemalloc.get_traced_memory()
            self.peak_bytes = max(self.peak_bytes, peak - now if self.taken else 0)
            self._samples[:, self.taken] = self._count, now, resident_bytes(), self._device_bytes()
            self.taken += 1
            tracemalloc.reset_peak()
            if self.taken == SAMPLES:
                self.over.set()

    def growth(self) -> Growth:
        third = SAMPLES // 3  # in the first, what is made once is made
        rise = np.median(self._samples[:, -third:], 1) - np.median(self._samples[:, third:-third], 1)
        python, resident, device = (float(each) for each in rise[1:] / rise[0])
        return Growth(int(self._samples[0, -1]), python, resident, device, python_peak_kib=self.peak_bytes / 1024)


def growth_per_chunk(
    executor: Executor,
    latch: Callable[[int], Latched | None],
    chunks: int,
    device: torch.device | None = None,
    end_s: float = math.inf,
) -> Growth:
    """Run the executor live for about `chunks` chunks; it should be warm. Raises RuntimeError if a worker fails, and
    OverError where end_s of the monotonic clock comes first."""
    on_gpu = device is not None and device.type == "cuda"
    sampler = _Sampler(chunks, (lambda: torch.cuda.memory_allocated(device)) if on_gpu else (lambda: 0))
    tracing = tracemalloc.is_tracing()
    gc.collect()
    gc.freeze()  # existing objects are not scanned again, so that a sample is fast
    if not tracing:
        tracemalloc.start()
    try:
        with Running(executor, latch, sampler.emit) as live:
            live.wait(sampler.over, min(LIMIT_S, end_s - time.monotonic()))
    finally:
        gc.unfreeze()
        if not tracing:
            tracemalloc.stop()
    if not sampler.over.is_set():
        if time.monotonic() >= end_s:
            raise OverError
        raise RuntimeError(f"{executor.plan}: stopped after {sampler.taken} of {SAMPLES} samples")
    return sampler.growth()


def resident_bytes() -> int:
    """The process's resident set. Raises FileNotFoundError on systems without /proc."""
    import resource

    return int(STATM.read_text().split()[1]) * resource.getpagesize()


class Capturing:
    """A device that counts its captures and adds up their time; all else is the inner one's."""

    def __init__(self, inner: Device) -> None:
        self._inner = inner
        self.stages, self.capture_s = 0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        began_s = time.monotonic()
        try:
            return self._inner.capture(name, body, lane)
        finally:
            self.stages, self.capture_s = self.stages + 1, self.capture_s + time.monotonic() - began_s


@contextmanager
def held_by(device: torch.device) -> Iterator[dict[str, int]]:
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
