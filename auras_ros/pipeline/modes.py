"""The four modes behind one interface: which workers a plan has, and what they share (rule 11 of docs/pipeline.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import count
from statistics import median

import torch

from auras_ros.device import occupy
from auras_ros.pipeline.auras import PipelineWorker
from auras_ros.pipeline.continuity import Continuity, make_continuity
from auras_ros.pipeline.decoupled import GenerationWorker, PerceptionWorker
from auras_ros.pipeline.perception import check_stages
from auras_ros.pipeline.plan import Plan, PlanError, stage_steps
from auras_ros.pipeline.request import Emission, Latched, Ledger, ObservationOrigin, Worker
from auras_ros.pipeline.run_context import RunContext
from auras_ros.pipeline.whole import RequestWorker
from auras_ros.policies.guidance import GuidablePolicy
from auras_ros.policies.policy import CausalPolicy, Policy

WARM_UP_RUNS = 3


def _random_observations(like: Latched) -> Iterator[Latched]:
    """Random observations of these shapes, each newer than the previous one."""
    random = torch.Generator().manual_seed(0)
    for stamp_ns in count(1):
        images, state = (torch.randn(part.shape, generator=random) for part in (like.images, like.state))
        yield Latched(images, state, ObservationOrigin(stamp_ns, stamp_ns, like.origin.reference))


class Executor:
    """The workers of one plan. They are driven by threads (`live`) or in virtual time (lockstep)."""

    def __init__(
        self, run_context: RunContext, workers: Sequence[Worker], ledger: Ledger, continuity: Continuity
    ) -> None:
        self.policy, self.plan, self.clock = run_context.policy, run_context.plan, run_context.clock
        self.workers, self.ledger, self.continuity = tuple(workers), ledger, continuity
        self.frame_ns = 0  # how long the slowest worker's frame takes, by the quickest warm-up; 0 before it
        self._run_context = run_context

    @property
    def frames(self) -> int:
        """Frames begun since the start, without warm-up and without frames that only perceive (dec)."""
        return self.ledger.frames

    def first(self, concurrency: int) -> Executor:
        """The same with its first so many workers only, which stay those of this executor: close this one."""
        made = copy(self)
        made.workers = self.workers[:concurrency]
        return made

    def frame(self, seen: Latched, now_ns: int) -> Emission | None:
        """One whole frame of the only worker, in the caller's thread."""
        (worker,) = self.workers
        worker.begin(seen, now_ns)
        worker.run()
        return worker.end(now_ns)

    def warm_up(self, runs: int = WARM_UP_RUNS) -> None:
        """Run every worker on random values and discard the results (rule 10 of docs/pipeline.md). If that fails the
        executor is closed.

        Several workers first run alone, then side by side as they will run later: two workers on shared cores take
        longer than one. A frame's time is the median of the last `runs` times of the slowest worker, `frame_ns` the
        least of all warm-ups: a machine that was busy during one is not slow.
        """
        try:
            took_ns = self._warm_up(runs)
        except BaseException:
            self.close()
            raise
        self.frame_ns = min(took_ns, self.frame_ns or took_ns)
        plan, spaced = self.plan, self._run_context.spaced
        if spaced and plan.mode == "par" and not plan.together and plan.frame_period_ms == 0:
            self.ledger.interval_ns = self.frame_ns // plan.concurrency  # requests evenly spaced

    def _warm_up(self, runs: int) -> int:
        """How long a frame takes, in ns."""
        self.ledger.begin_warm_up()
        interval_ns, self.ledger.interval_ns = self.ledger.interval_ns, 0
        observations, took = _random_observations(self._run_context.like), [[0] for _ in self.workers]
        filling = self.plan.latency_frames if self.plan.mode == "auras" else 0
        for _ in range(runs + filling):
            took = [
                [*times, self._rehearse([worker], observations)[0]]
                for worker, times in zip(self.workers, took, strict=True)
            ]
        if len(self.workers) > 1:
            if self.plan.mode == "dec":
                # perceive one context first, so that generation has work from the start
                self._rehearse(self.workers[:1], observations)
            rounds = [self._rehearse(self.workers, observations) for _ in range(runs)]
            took = [list(times) for times in zip(*rounds, strict=True)]
        self.ledger.end_warm_up()
        self.ledger.interval_ns = interval_ns
        return max(round(median(times[-runs:])) for times in took)

    def _rehearse(self, workers: Sequence[Worker], observations: Iterator[Latched]) -> list[int]:
        """Run one frame of each of these workers side by side. Returns how long each took, in ns."""
        for worker in workers:
            worker.begin(next(observations), self.clock.now_ns())
        if len(workers) == 1:
            took = [self._timed(workers[0])]
        else:
            threads = torch.get_num_threads()
            with ThreadPoolExecutor(len(workers), initializer=lambda: occupy("warm-up", None, threads)) as pool:
                took = list(pool.map(self._timed, workers))
        for worker in workers:
            worker.end(self.clock.now_ns())
        return took

    def _timed(self, worker: Worker) -> int:
        """How long `run` takes, in ns; the boundaries are copies and take about a hundredth of it."""
        began_ns = self.clock.now_ns()
        worker.run()
        return self.clock.now_ns() - began_ns

    def reset(self, first_request: int | None = None) -> None:
        """Start a new epoch at the next boundary (rule 9 of docs/pipeline.md).

        `first_request` restarts the noise tape there.
        """
        self.ledger.reset(first_request)

    def close(self) -> None:
        """Close the device's lanes."""
        self._run_context.device.close()


def family_offset(policy: Policy) -> int:
    """The fetch_offset of a policy's family: -1 for autoregressive policies, 0 for others (Auras 4.3.1)."""
    return -1 if isinstance(policy, CausalPolicy) else 0


def check_plan(policy: Policy, plan: Plan) -> None:
    """Raise PlanError if the policy cannot run this plan: fewer steps or blocks than stages, or fields of another
    family."""
    stage_steps(policy.steps, plan.pp_generation, plan.alpha)
    check_stages(policy, plan.pp_perception)
    causal = isinstance(policy, CausalPolicy)
    for name in ("merge", "emit", "reuse"):
        given = getattr(plan, name)
        if given != getattr(Plan, name) and not causal:
            raise PlanError(f"plan: {name}: {given!r} has no meaning for a policy that is not autoregressive")
    if plan.guide != "none" and not isinstance(policy, GuidablePolicy):
        raise PlanError(f"plan: guide: {plan.guide!r} has no meaning for a policy that does not denoise its chunk")
    if not plan.batched and causal:
        raise PlanError("plan: batched: false has no meaning for an autoregressive policy: its requests are merged")


def make_executor(run_context: RunContext) -> Executor:
    """The executor of a plan. Raises PlanError, and DeviceError if a stage cannot be made; the device is closed."""
    try:
        return _made(run_context)
    except BaseException:
        run_context.device.close()
        raise


def _made(run_context: RunContext) -> Executor:
    plan = run_context.plan
    check_plan(run_context.policy, plan)
    ledger = Ledger(plan.admission_ns if run_context.spaced else 0, run_context.stale_ns)
    continuity = make_continuity(plan, run_context.contract)
    workers: list[Worker]
    if plan.mode == "auras":
        workers = [PipelineWorker(run_context, ledger, continuity)]
    elif plan.mode == "dec":
        perception = PerceptionWorker(run_context, ledger)
        workers = [perception, GenerationWorker(run_context, ledger, continuity, perception)]
    elif plan.mode == "par" and not plan.together:
        names = [f"worker{i}" for i in range(plan.concurrency)]
        workers = [RequestWorker(run_context, ledger, continuity, name) for name in names]
    else:
        workers = [RequestWorker(run_context, ledger, continuity, count=plan.concurrency)]
    return Executor(run_context, workers, ledger, continuity)
