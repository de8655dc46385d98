"""A GPU that does as little as it may: work runs only when the host waits, and then in the most awkward order.

It stands in for the few names of `torch.cuda` that the device room uses. Each stream is a queue; whenever the host
waits for an event, heads of queues that may run are picked at random. So whatever the lanes forget to put in order
comes out in the wrong order sooner or later. Kernels are host functions put in with `kernel`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

Op = tuple[Callable[[], bool], Callable[[], None]]  # may it run, and what it does


class Gpu:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.streams: list[Stream] = []
        self.now_ms: Callable[[], float] = lambda: self.work_ms
        self.work_ms = 0.0  # passes by a millisecond a kernel
        self.capturing: Graph | None = None
        self.captures: list[dict[str, Any]] = []
        self.pools = 0
        self.synchronised: list[Event] = []
        self.default = Stream(self)
        self.external: dict[int, Stream] = {}  # streams that torch did not make, by their handle
        self._of_thread = threading.local()

    @property
    def current(self) -> Stream:
        """Of the calling thread."""
        return getattr(self._of_thread, "stream", self.default)

    @current.setter
    def current(self, stream: Stream) -> None:
        self._of_thread.stream = stream

    def kernel(self, run: Callable[[], object]) -> None:
        """Put one kernel on the current stream, or into the graph that is being captured."""
        if self.capturing is not None:
            self.capturing.kernels.append(run)
        else:
            self.current.put(run)

    def run_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            ready = [stream for stream in self.streams if stream.queue and stream.queue[0][0]()]
            assert ready, "the GPU waits for itself"
            self.random.choice(ready).queue.pop(0)[1]()

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def capture(self, graph: Graph, pool: object, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        """Like torch's: whatever goes wrong inside, its end raises something else and leaves the stream current."""
        self.captures.append({"pool": pool, "stream": stream, "mode": capture_error_mode})
        before, self.current, self.capturing = self.current, stream, graph
        try:
            yield
        except Exception as error:
            raise RuntimeError("operation failed due to a previous error during capture") from error
        finally:
            self.capturing = None
        self.current = before

    def new_pool(self) -> int:
        self.pools += 1
        return self.pools


class Stream:
    device = torch.device("cuda", 0)

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.queue: list[Op] = []
        gpu.streams.append(self)

    def put(self, run: Callable[[], object], may: Callable[[], bool] = lambda: True) -> None:
        def kernel() -> None:
            self.gpu.work_ms += 1.0
            run()

        self.queue.append((may, kernel))

    def wait_event(self, event: Event) -> None:
        reached = event.passed(event.recorded)
        self.queue.append((reached, lambda: None))

    def wait_stream(self, other: Stream) -> None:
        event = Event(self.gpu)
        event.record(other)
        self.wait_event(event)

    def synchronize(self) -> None:
        self.gpu.run_until(lambda: not self.queue)


class Event:
    def __init__(self, gpu: Gpu, enable_timing: bool = False, blocking: bool = False) -> None:
        self.gpu, self.timing, self.blocking = gpu, enable_timing, blocking
        self.recorded = self.completed = 0
        self.at_ms = float("nan")

    def record(self, stream: Stream) -> None:
        self.recorded += 1
        number = self.recorded

        def mark() -> None:
            self.completed, self.at_ms = number, self.gpu.now_ms()

        stream.queue.append((lambda: True, mark))

    def passed(self, number: int) -> Callable[[], bool]:
        return lambda: self.completed >= number

    def query(self) -> bool:
        return self.completed >= self.recorded

    def synchronize(self) -> None:
        self.gpu.synchronised.append(self)
        self.gpu.run_until(self.passed(self.recorded))

    def elapsed_time(self, later: Event) -> float:
        """In milliseconds and single precision, as CUDA tells it."""
        assert self.timing
        assert later.timing
        return float(np.float32(later.at_ms - self.at_ms))


class Graph:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.kernels: list[Callable[[], object]] = []

    def replay(self) -> None:
        for run in self.kernels:
            self.gpu.current.put(run)


def install(patch: pytest.MonkeyPatch, seed: int = 0) -> Gpu:
    """torch.cuda's names stand for this GPU until `patch` is undone."""
    gpu = Gpu(seed)
    patch.setattr(torch.backends.cuda, "is_built", lambda: True)
    names = {
        "is_available": lambda: True,
        "Stream": lambda device=None: Stream(gpu),
        "Event": lambda enable_timing=False, blocking=False: Event(gpu, enable_timing, blocking),
        "CUDAGraph": lambda: Graph(gpu),
        "graph": gpu.capture,
        "ExternalStream": lambda handle, device=None: gpu.external[handle],
        "stream": gpu.on,
        "set_stream": lambda stream: setattr(gpu, "current", stream),
        "current_stream": lambda device=None: gpu.current,
        "graph_pool_handle": gpu.new_pool,
    }
    for name, stand_in in names.items():
        patch.setattr(torch.cuda, name, stand_in)
    return gpu
