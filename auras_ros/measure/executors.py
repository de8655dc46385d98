"""Chunks per second of one variant: real threads, observations always available, a window between two chunks.

Executors are made once and stay warm: a window continues where the variant's last one ended, so that a pipeline is full
from its first frame. Within a window a worker's rate is taken between its first chunk and its last one, so that neither
the start of its thread nor an unfinished chunk counts. All threads of a bench stay on its cores.
"""

from __future__ import annotations

import gc
from dataclasses import replace

from auras_ros.clock import MonotonicClock
from auras_ros.device import make_device
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.feed import random_feed
from auras_ros.measure.forms import Variant
from auras_ros.measure.running import Running
from auras_ros.measure.window import Length, Meter
from auras_ros.pipeline.modes import WARM_UP_RUNS, Executor, make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.family import LoadedPolicy


class Bench:
    """One policy's executors on one kind of device, made when first used. most: par's largest number of workers. cores:
    how many of the host's cores they have together, lanes and workers; None: all of this process's.

    staleness_ms: for each variant and window, see `Meter.staleness_ms`.
    """

    def __init__(self, policy: LoadedPolicy, device: str, seed: int, most: int, cores: int | None = None) -> None:
        self.cores = available() if cores is None else cores
        self.staleness_ms: dict[Variant, list[float]] = {}
        self.device = make_device(device).tensors
        self.noise, self._most = noise_of(policy, seed), most
        self.feed = random_feed(policy, seed)
        self.policy = policy
        policy.to(self.device)
        self._clock = MonotonicClock()
        self._made: dict[Plan, Executor] = {}

    def make(self, plan: Plan) -> Executor:
        """A new warmed-up executor, which the caller must close."""
        with on_cores(self.cores):
            device, like = make_device(self.device.type), self.feed(0)
            executor = make_executor(RunContext(self.policy, plan, self.noise, like, self._clock, device, spaced=False))
            executor.warm_up(1 if plan.mode == "par" else WARM_UP_RUNS)  # a worker has no pipeline
        return executor

    def prepare(self, plan: Plan) -> Executor:
        """The plan's executor. par shares one for all its numbers of workers: n workers are the first n of it; a batch
        has an executor of its own."""
        shared = plan.mode == "par" and not plan.together
        kept = replace(plan, concurrency=self._most) if shared else plan
        if kept not in self._made:
            self._made[kept] = self.make(kept)
        return self._made[kept].first(plan.concurrency) if shared else self._made[kept]

    def rate(self, variant: Variant, length: Length) -> float:
        """Chunks per second in one window. Raises RuntimeError if a worker fails."""
        executor = self.prepare(variant.plan)
        emitting = sum(worker.emits for worker in executor.workers)
        meter = Meter(emitting, length, self._clock.now_ns)
        gc.collect()
        with on_cores(self.cores), Running(executor, self.feed, meter.emit, threads=variant.threads) as live:
            live.wait(meter.over, length.limit_s)
            meter.over.set()  # what comes while the workers end does not count
        if (stale_ms := meter.staleness_ms()) is not None:
            self.staleness_ms.setdefault(variant, []).append(stale_ms)
        return meter.rate()

    def close(self) -> None:
        for executor in self._made.values():
            executor.close()
        self._made.clear()
