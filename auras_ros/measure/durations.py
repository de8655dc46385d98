"""How long each mode's frames take on this machine: its executor, live, in its own threads, one environment.

Rounds of all modes are interleaved, so that a machine that becomes slower meanwhile slows all of them. Warm-up and the
first frame of each round are discarded (rule 10 of docs/pipeline.md). For workers that make chunks, frames without a
chunk are discarded too: between two observations a pipeline runs very short frames that only advance perception.
Nothing here is simulated.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch

from auras_ros.loading.pipeline import example, executor_on
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.running import Running
from auras_ros.number_checks import is_int, is_number, shown
from auras_ros.pipeline.live import Frame
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.request import Latched
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.report.result import Say
from auras_ros.report.statistics import spread

ROUNDS, FRAMES, LIMIT_S = 3, 8, 120.0
NOISE_SEED = 0


@dataclass(frozen=True)
class FrameDuration:
    """Median of n frames, with the 10th and 90th percentile; seconds. n is 0 if it was given, not measured."""

    seconds: float
    n: int = 0
    p10_s: float | None = None
    p90_s: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError: reports and work files have durations too."""
        for name in ("seconds", "p10_s", "p90_s"):
            value = getattr(self, name)
            if (value is not None or name == "seconds") and not (is_number(value) and value >= 0):
                raise ValueError(f"durations: {name}: {shown(value)} is not a time in seconds")
        if not is_int(self.n) or self.n < 0:
            raise ValueError(f"durations: n: {shown(self.n)} is not a number of frames")


def refusal(plan: Plan, frame_ns: int, horizon_ns: int) -> str:
    """Why the agent would refuse a plan with frames this long; empty if it would not."""
    try:
        plan.check_horizon(plan.interval_ns(frame_ns), horizon_ns)
    except PlanError as error:
        return str(error).removeprefix("plan: ")
    return ""


def measure_durations(
    checkpoint: Checkpoint | Mapping[str, Checkpoint],
    plans: Mapping[str, Plan],
    rounds: int = ROUNDS,
    frames: int = FRAMES,
    observation_ms: float = 0.0,
    say: Say = lambda text: None,
    device: str = "cpu",
    cores: int | None = None,
) -> dict[str, FrameDuration]:
    """Duration key (the plan's label; for dec label/worker) -> how long a frame takes, from latching to its chunk.

    checkpoint: of all plans, or label -> that of each. frames: of each worker, each round. observation_ms: the interval
    between new observations; 0: always a new one. For par a frame is a whole request, while all other workers run
    theirs. device: cpu, cuda or auto; the checkpoint itself is not moved. cores: how many of the host's cores
    every plan has (None: all of this process's). Raises DeviceError, and RuntimeError if a worker makes no progress.
    """
    torch.set_num_threads(1)
    owners = checkpoint if isinstance(checkpoint, Mapping) else dict.fromkeys(plans, checkpoint)
    if device != "cpu":  # plans share weights with the checkpoint, whose episodes are played on the CPU
        owners = copy.deepcopy(dict(owners))
    with on_cores(available() if cores is None else cores), ExitStack() as stack:
        runs: dict[str, _Run] = {}
        for label, plan in plans.items():
            runs[label] = _Run(owners[label], plan, observation_ms, device)
            stack.callback(runs[label].executor.close)
        for number in range(rounds):
            for label, run in runs.items():
                say(f"measuring durations: round {number + 1} of {rounds}, {label}")
                run.round(label, frames)
        return {key: duration for label, run in runs.items() for key, duration in run.result(label).items()}


class _Run:
    """One plan's executor, warmed up once and run live in each round, on random values."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, observation_ms: float, device: str = "cpu") -> None:
        # all of par's workers must be busy while one is timed, so none may wait for an observation of its own
        self._observation_ns = 0 if plan.mode == "par" else round(observation_ms * 1e6)
        policy = checkpoint.policy(plan.generation)
        self.executor: Executor = executor_on(device, checkpoint, policy, plan, NOISE_SEED, spaced=False)
        self._newest = example(checkpoint)
        self.executor.warm_up()
        self._kept_ns: dict[str, list[int]] = {worker.name: [] for worker in self.executor.workers}

    def round(self, label: str, frames: int) -> None:
        """Time so many frames of each worker: all of them, or those that end with a chunk."""
        newest_ns: dict[str, list[int]] = {name: [] for name in self._kept_ns}
        enough = threading.Event()

        def observe(frame: Frame) -> None:
            if frame.emission is not None or frame.number is None:
                newest_ns[frame.worker].append(frame.ended_ns - frame.began_ns)
                if min(map(len, newest_ns.values())) > frames:
                    enough.set()

        with Running(self.executor, self._latch, lambda emission: None, observer=observe) as live:
            if not live.wait(enough, LIMIT_S):
                slowest = min(newest_ns, key=lambda name: len(newest_ns[name]))
                what = f"{frames + 1} frames that ended with a chunk"
                raise RuntimeError(f"durations: {label}: {slowest} had no {what} in {LIMIT_S:g} s")
        self._keep(newest_ns)

    def _keep(self, newest_ns: Mapping[str, Sequence[int]]) -> None:
        """All but the first of a round: a new thread's first frame has one-time costs."""
        for name, took_ns in newest_ns.items():
            self._kept_ns[name] += took_ns[1:]

    def _latch(self, now_ns: int) -> Latched:
        every_ns = self._observation_ns
        stamp_ns = now_ns - now_ns % every_ns if every_ns else now_ns
        newest = self._newest  # two workers may both replace it; each returns the one that it has read
        if stamp_ns > newest.origin.mono_ns:
            newest = self._newest = replace(newest, origin=replace(newest.origin, stamp_ns=stamp_ns, mono_ns=stamp_ns))
        return newest

    def result(self, label: str) -> dict[str, FrameDuration]:
        named = {f"{label}/{name}": kept_ns for name, kept_ns in self._kept_ns.items()}
        if self.executor.plan.mode != "dec":
            named = {label: [each for kept_ns in named.values() for each in kept_ns]}
        found = {}
        for key, kept_ns in named.items():
            p10, median, p90 = (each / 1e9 for each in spread(kept_ns, 10, 90))
            found[key] = FrameDuration(median, len(kept_ns), p10, p90)
        return found
