"""Chunks per second of one variant: real threads, observations always available, a window between two chunks.

Executors are made once and stay warm: a window continues where the variant's last one ended, so that a pipeline is full
from its first frame. Within a window a worker's rate is taken between its first chunk and its last one, so that neither
the start of its thread nor an unfinished chunk counts. All threads of a bench stay on its cores.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from auras_ros.bench.cores import available, on_cores
from auras_ros.bench.feed import random_feed
from auras_ros.bench.pipeline_variants import Variant
from auras_ros.clock import MonotonicClock
from auras_ros.device import make_device
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.modes import WARM_UP_RUNS, Executor, make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.noise import noise_tape

END_S = 600.0  # how long to wait for the frame that is running when its window ends
POLL_S = 0.5


class Length(NamedTuple):
    """A window ends once every worker has made `chunks` chunks and it has lasted `seconds`, or after `limit_s`."""

    chunks: int = 3
    seconds: float = 1.0
    limit_s: float = 30.0


class Bench:
    """One policy's executors on one kind of device, made when first used. most: par's largest number of workers. cores:
    how many of the host's cores they have together, lanes and workers; None: all of this process's.

    staleness_ms: for each variant and window, see `Meter.staleness_ms`.
    """

    def __init__(self, policy: LoadedPolicy, device: str, seed: int, most: int, cores: int | None = None) -> None:
        self.cores = available() if cores is None else cores
        self.staleness_ms: dict[Variant, list[float]] = {}
        self.device = make_device(device).tensors
        self._seed, self._most = seed, most
        self.feed = random_feed(policy, seed)
        policy.to(self.device)
        self._policy = policy
        self._clock = MonotonicClock()
        self._made: dict[Plan, Executor] = {}

    @property
    def policy(self) -> LoadedPolicy:
        return self._policy

    def noise(self, request: int) -> Tensor:
        return noise_tape(self._policy.noise_shape, self._seed, request)[None]

    def make(self, plan: Plan) -> Executor:
        """A new warmed-up executor, which the caller must close."""
        with on_cores(self.cores):
            executor = make_executor(self._policy, plan, self.noise, self._clock, make_device(self.device.type))
            executor.warm_up(self.feed(0), 1 if plan.mode == "par" else WARM_UP_RUNS)  # a worker has no pipeline
        executor.ledger.interval_ns = 0  # par's workers do not wait for each other
        return executor

    def prepare(self, plan: Plan) -> Executor:
        """The plan's executor. par shares one for all its numbers of workers: n workers are the first n of it; a batch
        has an executor of its own."""
        if plan.mode != "par" or plan.together:
            return self._kept(plan)
        executor = copy.copy(self._kept(replace(plan, workers=self._most)))
        executor.workers = executor.workers[: plan.workers]
        return executor

    def _kept(self, plan: Plan) -> Executor:
        if plan not in self._made:
            self._made[plan] = self.make(plan)
        return self._made[plan]

    def rate(self, variant: Variant, length: Length) -> float:
        """Chunks per second in one window. Raises RuntimeError if a worker fails."""
        executor = self.prepare(variant.plan)
        emitting = sum(worker.name != "perceive" for worker in executor.workers)
        meter = Meter(emitting, length, self._clock.now_ns)
        gc.collect()
        with on_cores(self.cores):
            live = Live(executor, self.feed, meter.emit, threads=variant.threads)
            began_ns = self._clock.now_ns()
            live.start()
        try:
            while not meter.over.wait(POLL_S) and self._clock.now_ns() - began_ns < length.limit_s * 1e9:
                if not live.working():
                    raise RuntimeError(f"{variant.label}: a worker failed")
        finally:
            meter.over.set()
            live.halt(END_S)
        if (stale_ms := meter.staleness_ms()) is not None:
            self.staleness_ms.setdefault(variant, []).append(stale_ms)
        return meter.rate()

    def close(self) -> None:
        for executor in self._made.values():
            executor.close()
        self._made.clear()


class Meter:
    """When each worker emitted. `over` is set when the window is long enough; later emissions do not count."""

    def __init__(self, workers: int, length: Length, now_ns: Callable[[], int]) -> None:
        self.over = threading.Event()
        self._workers, self._length, self._now_ns = workers, length, now_ns
        self._came: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)  # of a worker: (when, its frame)
        self._seen: list[tuple[int, int]] = []  # (time, stamp of the newest observation used so far)
        self._lock = threading.Lock()

    def emit(self, emission: Emission) -> None:
        """Called in the worker's thread, which has the worker's name."""
        with self._lock:
            if self.over.is_set():
                return
            now_ns, read_ns = self._now_ns(), emission.contexts[-1].mono_ns
            self._came[threading.current_thread().name].append((now_ns, emission.frame))
            self._seen.append((now_ns, max(read_ns, self._seen[-1][1] if self._seen else read_ns)))
            workers = self._came.values()
            enough = len(workers) == self._workers and all(_after(came) >= self._length.chunks for came in workers)
            if enough and now_ns - min(came[0][0] for came in workers) >= self._length.seconds * 1e9:
                self.over.set()

    def rate(self) -> float:
        """Chunks per second of all workers together. 0 if a worker emitted in fewer than two frames: it used its share
        of the cores, but its rate is not known."""
        workers = list(self._came.values())
        if len(workers) < self._workers or not all(map(_after, workers)):
            return 0.0
        return sum(_after(came) * 1e9 / (came[-1][0] - came[0][0]) for came in workers)

    def staleness_ms(self) -> float | None:
        """The mean age of the observation behind the newest chunk, over the time from the first chunk to the last: a
        chunk ages until the next one comes. None if all chunks came at one instant."""
        whole_ns = self._seen[-1][0] - self._seen[0][0] if self._seen else 0
        if not whole_ns:
            return None
        aged = sum((end - begin) * ((begin + end) / 2 - read) for (begin, read), (end, _) in pairwise(self._seen))
        return aged / whole_ns / 1e6


def _after(came: Sequence[tuple[int, int]]) -> int:
    """Number of chunks after those of the first frame, which were made before the window."""
    return len(came) - sum(frame == came[0][1] for _, frame in came)
