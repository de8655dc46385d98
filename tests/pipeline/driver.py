"""Drives an executor and the plain model of the rules side by side, and compares all that leaves them.

Workers begin, run and end in any interleaving that one thread a worker could bring about; time passes in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auras_ros.clock import VirtualClock
from auras_ros.device import Device, make_device
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Worker
from auras_ros.pipeline.run_context import RunContext
from tests.pipeline import recording
from tests.pipeline.recording import RecordingNoise, RecordingPolicy, latched, mono_ns, stamp_of
from tests.pipeline.reference import Decoupled, Frames, Model, Request, Whole, split

IDLE, BEGUN, RAN = range(3)
MS = 1_000_000


def executor_of(
    policy: RecordingPolicy, plan: Plan, noise: RecordingNoise, clock: VirtualClock, device: Device | None = None
) -> Executor:
    like = latched(9_999, noise.environments)
    return make_executor(RunContext(policy, plan, noise, like, clock, device or make_device("cpu")))


def model_of(plan: Plan, steps: int, stale: int | None = None) -> Model:
    """The rules' own account of this plan. stale: as in `Frames`, counted in stamps."""
    if plan.mode == "auras":
        counts = split(steps, plan.pp_generation, plan.alpha)
        return Frames(plan.pp_perception, plan.fetch_offset, counts, stale)
    if plan.mode == "dec":
        return Decoupled(steps)
    return Whole(plan.concurrency, steps, round(plan.frame_period_ms * MS) if plan.mode == "par" else 0)


@dataclass(frozen=True)
class Left:
    """What left the executor, with a copy of its actions from that moment."""

    emission: Emission
    actions: NDArray[np.float64]


class Both:
    """`stamp` is the newest observation; None where there is none to be had."""

    def __init__(
        self, plan: Plan, steps: int, environments: int, device: Device | None = None, stale: int | None = None
    ) -> None:
        self.environments = list(range(environments))
        self.noise = RecordingNoise(steps, self.environments)
        self.clock = VirtualClock(5 * MS)
        self.executor = executor_of(RecordingPolicy(steps), plan, self.noise, self.clock, device)
        self.executor.ledger.stale_ns = None if stale is None else mono_ns(stale)
        self.model = model_of(plan, steps, stale)
        self.stamp: int | None = 1
        self.left: list[Left] = []
        self._latest, self._went_back = 0, False
        self._drawn_before = 0
        count = len(self.executor.workers)
        self.states, self._lately, self._number = [IDLE] * count, [0] * count, [0] * count
        self._began_ns: list[int] = []  # by begin
        self._ran_ns: dict[int, int] = {}  # by begin

    def warm_up(self) -> None:
        self.executor.warm_up()
        self._drawn_before = len(self.noise.drawn)

    def reset(self, first_request: int | None) -> None:
        self.executor.reset(first_request)
        self.model.reset(first_request)
        self._latest, self._went_back = 0, False

    def advance(self, number: int, forced: bool = False) -> Left | None:
        """The next of begin, run and end of one worker. `forced`: begin although there is nothing to do."""
        if self.states[number] == IDLE:
            self._begin(number, forced)
        elif self.states[number] == BEGUN:
            self._ran_ns[self._number[number]] = self.clock.now_ns()
            self.executor.workers[number].run()
            self.states[number] = RAN
        else:
            self.states[number] = IDLE
            return self._end(number, self.executor.workers[number])
        return None

    def frame(self, number: int = 0) -> Left | None:
        """One worker from begin to end, a little time between each; nothing if it does not want to."""
        left = None
        for _ in range(3):
            left = self.advance(number)
            self.clock.advance(MS)
            if self.states[number] == IDLE:
                break
        return left

    def finish(self, number: int) -> None:
        """To the end of what the worker is at."""
        while self.states[number] != IDLE:
            self.advance(number)

    def _begin(self, number: int, forced: bool) -> None:
        worker, now_ns = self.executor.workers[number], self.clock.now_ns()
        seen = None if self.stamp is None else latched(self.stamp, self.environments)
        wanted = worker.wants(seen, now_ns)
        self._check_wants(number, wanted)
        if not wanted and (seen is None or not forced):
            return
        worker.begin(seen, now_ns)
        if seen is not None:  # rule 1: latched once, at the start; the caller may use its buffers again
            seen.images.fill_(-1.0)
            seen.state.fill_(-1.0)
        self._number[number] = self.model.begins
        self.model.begin(number, self.stamp, now_ns)
        self._began_ns.append(now_ns)
        self.states[number] = BEGUN

    def _check_wants(self, number: int, wanted: bool) -> None:
        """What would bring something on is wanted, and nothing else; in vain only after observations went back."""
        expected = self.model.wants(number, self.stamp, self.clock.now_ns())
        name = self.executor.workers[number].name
        assert wanted or not expected, f"{name} does not want a frame that has something to do"
        assert expected or not wanted or self._went_back, f"{name} wants a frame that has nothing to do"
        if self.stamp is not None:
            self._went_back = self._went_back or self.stamp < self._latest
            self._latest = max(self._latest, self.stamp)

    def _end(self, number: int, worker: Worker) -> Left | None:
        emission, expected = worker.end(self.clock.now_ns()), self.model.end(number)
        assert self.noise.drawn[self._drawn_before :] == self.model.tapes
        assert self.executor.frames == self.model.frames
        if emission is None or expected is None:
            assert emission is None, f"request {emission.request} of epoch {emission.epoch} leaves, and should not"
            assert expected is None, f"request {expected.number} of epoch {expected.epoch} should leave, and does not"
            return None
        self._compare(emission, expected, self._number[number])
        left = Left(emission, emission.actions.numpy().copy())
        self.left.append(left)
        return left

    def _compare(self, emission: Emission, expected: Request, begin: int) -> None:
        assert (emission.request, emission.epoch) == (expected.number, expected.epoch)
        assert emission.frame == expected.frame
        np.testing.assert_array_equal(
            emission.actions.numpy(), recording.record(expected.number, expected.used, self.environments)
        )
        assert [stamp_of(context) for context in emission.contexts] == expected.stages
        for context in emission.contexts:
            np.testing.assert_array_equal(context.reference, recording.reference(self.environments))
        assert emission.origin.mono_ns == mono_ns(expected.used[-1])
        assert list(emission.stage_ns) == [self._ran_ns[began] for began in expected.began]
        assert emission.latched_ns == self._began_ns[begin]
        assert emission.perceived_ns == emission.generated_ns == self._ran_ns[begin]

    def close(self) -> None:
        """The last look: nothing left twice, and what left has not changed since."""
        self.executor.close()
        requests = [(left.emission.epoch, left.emission.request) for left in self.left]
        assert len(set(requests)) == len(requests)
        for left in self.left:
            np.testing.assert_array_equal(left.emission.actions.numpy(), left.actions)
