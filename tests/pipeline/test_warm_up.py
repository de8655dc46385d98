"""How long warm-up says that a frame takes: with all workers at work, because that is how they will run.

Time is virtual and passes only under a lock that every worker needs, so that side by side takes as much longer as
there are workers. Barriers hold each worker in its frame until all are in theirs: a worker that was measured alone
breaks them. Nothing here depends on how threads are scheduled.
"""

from __future__ import annotations

import threading

import pytest
from torch import Tensor

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.denoising import DenoisingState
from tests.pipeline.driver import MS, executor_of
from tests.pipeline.recording import RecordingNoise, RecordingPolicy

PATIENCE_S = 30.0
STEPS = 4


class Contended(RecordingPolicy):
    """A policy whose work needs one lock: a millisecond a step, and perception for `perceive_ms`.

    At warm-up's first frames a worker is alone, in the caller's thread; in any other it meets the rest twice: when all
    have begun, and when all are done.
    """

    def __init__(self, clock: VirtualClock, workers: int, perceive_ms: int) -> None:
        super().__init__(STEPS)
        self._clock, self._perceive_ms = clock, perceive_ms
        self._alone, self._lock = threading.current_thread(), threading.Lock()
        self._meet = threading.Barrier(workers, timeout=PATIENCE_S)
        self.met = 0

    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        if self._perceive_ms:
            self._work(self._perceive_ms, first=True, last=True)
        return super().perceive(images, state)

    def step(self, state: DenoisingState, context: Tensor, index: Tensor) -> DenoisingState:
        at = int(index[0])
        self._work(1, first=at == 0, last=at == STEPS - 1)
        return super().step(state, context, index)

    def _work(self, ms: int, first: bool, last: bool) -> None:
        beside = threading.current_thread() is not self._alone
        if beside and first:
            self._meet.wait()
        with self._lock:
            self._clock.advance(ms * MS)
            self.met += beside and last
        if beside and last:
            self._meet.wait()


def warmed(plan: Plan, workers: int, perceive_ms: int = 0, runs: int = 3) -> tuple[Executor, Contended]:
    clock = VirtualClock()
    policy = Contended(clock, workers, perceive_ms)
    executor = executor_of(policy, plan, RecordingNoise(STEPS, [0]), clock)
    executor.warm_up(runs)
    executor.close()
    return executor, policy


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_rule_10_pars_workers_are_measured_side_by_side(workers: int) -> None:
    """Each worker waits for all the others: N times as long as alone, and one request every N-th of that."""
    executor, policy = warmed(Plan(mode="par", concurrency=workers), workers)
    assert executor.frame_ns == workers * STEPS * MS
    assert executor.ledger.interval_ns == STEPS * MS
    assert policy.met == 3 * workers  # three runs, every worker in each


def test_rule_10_decs_workers_are_measured_side_by_side() -> None:
    """Perception takes as long as generation: both are done when both have had the lock."""
    executor, policy = warmed(Plan(mode="dec"), 2, perceive_ms=STEPS)
    assert executor.frame_ns == 2 * STEPS * MS
    assert policy.met == 3 * 2


@pytest.mark.parametrize("plan", [Plan(mode="seq"), Plan(mode="par"), Plan(mode="auras", pp_generation=2)], ids=str)
def test_rule_10_one_worker_is_measured_alone(plan: Plan) -> None:
    """auras: with a full pipeline, two rows of two steps each in two calls of the network."""
    executor, policy = warmed(plan, workers=2)
    assert executor.frame_ns == STEPS * MS // plan.pp_generation
    assert policy.met == 0


def test_rule_10_a_frame_that_is_slow_once_does_not_count() -> None:
    """The median of the runs: a frame that pays for something of its own says nothing about the others."""
    clock = VirtualClock()

    class Slow(RecordingPolicy):
        """Its last request is slow."""

        calls = 0

        def step(self, state: DenoisingState, context: Tensor, index: Tensor) -> DenoisingState:
            self.calls += 1
            clock.advance(100 * MS if self.calls == 3 * STEPS else MS)
            return super().step(state, context, index)

    executor = executor_of(Slow(STEPS), Plan(mode="seq"), RecordingNoise(STEPS, [0]), clock)
    executor.warm_up(runs=3)
    executor.close()
    assert executor.frame_ns == STEPS * MS
