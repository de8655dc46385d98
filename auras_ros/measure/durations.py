"""How long each mode's frames take on this machine: its executor, live, in its own threads, one environment.

Rounds of all modes are interleaved, so that a machine that becomes slower meanwhile slows all of them. Warm-up and the
first frame of each round are discarded (rule 10 of docs/pipeline.md). For workers that make chunks, frames without a
chunk are discarded too: between two observations a pipeline runs very short frames that only advance perception.
Nothing here is simulated.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from auras_ros.loading.pipeline import executor_on
from auras_ros.measure.cores import available, on_cores
from auras_ros.pipeline.decoupled import PerceptionWorker
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin, Worker
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.noise import noise_tape
from auras_ros.report.result import Say

ROUNDS, FRAMES, LIMIT_S = 3, 8, 120.0
NOISE_SEED = 0
POLL_S = 0.01


@dataclass(frozen=True)
class FrameDuration:
    """Median of n frames, with the 10th and 90th percentile; seconds. n is 0 if it was given, not measured."""

    seconds: float
    n: int = 0
    p10_s: float | None = None
    p90_s: float | None = None


def measure_durations(
    checkpoint: Checkpoint,
    plans: Mapping[str, Plan],
    rounds: int = ROUNDS,
    frames: int = FRAMES,
    observation_ms: float = 0.0,
    say: Say = lambda text: None,
    device: str = "cpu",
    cores: int | None = None,
) -> dict[str, FrameDuration]:
    """Duration key (the plan's label; for dec label/worker) -> how long a frame takes, from latching to its chunk.

    frames: of each worker, each round. observation_ms: the interval between new observations; 0: always a new one. For
    par a frame is a whole request, while all other workers run theirs. device: cpu, cuda or auto; the checkpoint itself
    is not moved. cores: how many of the host's cores every plan has (None: all of this process's). Raises DeviceError,
    and RuntimeError if a worker makes no progress.
    """
    torch.set_num_threads(1)
    if device != "cpu":  # plans share weights with the checkpoint, whose episodes are played on the CPU
        checkpoint = copy.deepcopy(checkpoint)
    with on_cores(available() if cores is None else cores):
        return _measured(checkpoint, plans, rounds, frames, observation_ms, say, device)


def _measured(
    checkpoint: Checkpoint,
    plans: Mapping[str, Plan],
    rounds: int,
    frames: int,
    observation_ms: float,
    say: Say,
    device: str,
) -> dict[str, FrameDuration]:
    runs = {label: _Run(checkpoint, plan, _every_ns(plan, observation_ms), device) for label, plan in plans.items()}
    try:
        for number in range(rounds):
            for label, run in runs.items():
                say(f"measuring durations: round {number + 1} of {rounds}, {label}")
                run.round(label, frames)
        return {key: duration for label, run in runs.items() for key, duration in run.result(label).items()}
    finally:
        for run in runs.values():
            run.executor.close()


def _every_ns(plan: Plan, observation_ms: float) -> int:
    """Interval of observations. 0 for par: all its workers must be busy while one is timed, so none may wait for an
    observation of its own."""
    return 0 if plan.mode == "par" else round(observation_ms * 1e6)


class _Timed:
    """A worker that records how long its frames take: all of them, or those that end with a chunk."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self.name = worker, worker.name
        self._makes_chunks = not isinstance(worker, PerceptionWorker)
        self.wants = worker.wants
        self.run = worker.run
        self.newest_ns: list[int] = []  # of this round
        self.kept_ns: list[int] = []

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        self._began_ns = time.monotonic_ns()
        self._worker.begin(seen, now_ns)

    def end(self, now_ns: int) -> Emission | None:
        emission = self._worker.end(now_ns)
        if emission is not None or not self._makes_chunks:
            self.newest_ns.append(time.monotonic_ns() - self._began_ns)
        return emission

    def settle(self) -> None:
        """Keep the round's frames except the first: a new thread's first frame has one-time costs."""
        self.kept_ns += self.newest_ns[1:]
        self.newest_ns = []


class _Run:
    """One plan's executor, warmed up once and run live in each round, on random values."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, observation_ns: int, device: str = "cpu") -> None:
        self._observation_ns = observation_ns
        policy = checkpoint.policy(plan.generation)

        def noise(request: int) -> torch.Tensor:
            return noise_tape(policy.noise_shape, NOISE_SEED, request)[None]

        self.executor: Executor = executor_on(device, checkpoint, policy, plan, noise)
        self._newest = _random(checkpoint)
        self.executor.warm_up(self._newest)
        self.executor.ledger.interval_ns = 0  # so that par's workers do not wait for each other
        self._timed = [_Timed(worker) for worker in self.executor.workers]
        self.executor.workers = tuple(self._timed)

    def round(self, label: str, frames: int) -> None:
        live = Live(self.executor, self._latch, lambda emission: None)
        end_s = time.monotonic() + LIMIT_S
        live.start()
        try:
            while slow := [timed.name for timed in self._timed if len(timed.newest_ns) <= frames]:
                if not live.working():
                    raise RuntimeError(f"durations: {label}: a worker failed; its error is above")
                if time.monotonic() > end_s:
                    what = f"{frames + 1} frames that ended with a chunk"
                    raise RuntimeError(f"durations: {label}: {slow[0]} had no {what} in {LIMIT_S:g} s")
                time.sleep(POLL_S)
                live.arrived()
        finally:
            live.halt(LIMIT_S)
        for timed in self._timed:
            timed.settle()

    def _latch(self, now_ns: int) -> Latched:
        every_ns = self._observation_ns
        stamp_ns = now_ns - now_ns % every_ns if every_ns else now_ns
        newest = self._newest  # two workers may both replace it; each returns the one that it has read
        if stamp_ns > newest.origin.mono_ns:
            newest = self._newest = replace(newest, origin=replace(newest.origin, stamp_ns=stamp_ns, mono_ns=stamp_ns))
        return newest

    def result(self, label: str) -> dict[str, FrameDuration]:
        named: dict[str, list[int]] = {}
        for timed in self._timed:
            name = timed.name if self.executor.plan.mode == "dec" else ""
            named.setdefault(f"{label}/{name}" if name else label, []).extend(timed.kept_ns)
        found = {}
        for key, kept_ns in named.items():
            p10, median, p90 = (float(q) / 1e9 for q in np.percentile(kept_ns, [10, 50, 90]))
            found[key] = FrameDuration(median, len(kept_ns), p10, p90)
        return found


def _random(checkpoint: Checkpoint) -> Latched:
    """One environment's observation of this checkpoint's shapes, standard normal."""
    spec, random = checkpoint.spec, torch.Generator().manual_seed(0)
    height, width = spec.image_size
    states = 0 if spec.state is None else len(spec.state.names)
    images = torch.randn((1, spec.history, len(spec.cameras), spec.channels, height, width), generator=random)
    state = torch.randn((1, spec.history, states), generator=random)
    reference = None if spec.state is None else np.zeros((1, len(checkpoint.contract.names)))
    return Latched(images, state, ObservationOrigin(0, 0, reference))
