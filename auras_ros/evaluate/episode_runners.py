"""Episodes that share one schedule, stepped together: one batch for the executor, one runner for each episode.

Frames depend on time and not on the world, so that a whole batch latches, computes and acts at the same instants. The
batch is fixed: the row of a finished episode keeps its last observation, and its chunks are not used. So the executor
runs here exactly as it does on a robot. This module does not depend on modes or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from auras_ros.evaluate.episode_runner import EpisodeRunner, LockstepError, Task
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.seams import Seams
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.loading.pipeline import to_latched
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.request import Emission, Identity, Latched, to_chunk
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.sim.process.world import ProcessWorld

REQUESTS_PER_EPISODE = 1_000  # each episode has its own stretch of the noise tape, so that seeds are paired
SEEDS = 2**32 // REQUESTS_PER_EPISODE  # number of seeds that have their own stretch of the noise tape
NOISE_SEED = 0
_IDENTITY = Identity()
T = TypeVar("T")


class EpisodeRunners:
    """One runner for each seed. frames: the executor's frames so far, without those that only perceive. finished:
    episodes that are over, in the order in which they ended. seams: optional counter of all runners' seams. worlds:
    where theirs come from and go back to."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        task: Task,
        seeds: Sequence[int],
        plain: bool,
        start_ns: int,
        seams: Seams | None = None,
        worlds: WorldPool | None = None,
    ) -> None:
        if not 1 <= task.max_steps <= REQUESTS_PER_EPISODE:
            raise ValueError(f"max_steps must be in [1, {REQUESTS_PER_EPISODE}], got {task.max_steps}")
        self._checkpoint, self.task = checkpoint, task
        self.dt_ns = checkpoint.contract.dt_ns
        self._reach_ns = checkpoint.spec.history * max(self.dt_ns, checkpoint.spec.dt_ns)
        self._worlds = WorldPool(task.world) if worlds is None else worlds
        self._runners = [
            EpisodeRunner(checkpoint, task, seed, self._worlds.begin(seed), plain, start_ns, seams) for seed in seeds
        ]
        self.finished: list[EpisodeRecord] = []
        self._outcome = ModeResult()
        self._rows: dict[int, Latched] = {}  # the newest observation of each episode
        self._latched: Latched | None = None
        self.frames = 0
        # The seams of all episodes are counted in one place, one after another.
        processes = seams is None and any(isinstance(runner.world, ProcessWorld) for runner in self._runners)
        self._threads = ThreadPoolExecutor(len(self._runners), "worlds") if processes else None
        for runner in self._runners:
            self._leave_if_done(runner)

    def living(self) -> dict[int, EpisodeRunner]:
        """The runners whose episodes are not over, by their row in the batch."""
        return {row: runner for row, runner in enumerate(self._runners) if not runner.done}

    @property
    def instruction(self) -> str:
        """What the policy is to do now; empty if it is not told. Raises LockstepError if the episodes differ."""
        told = dict.fromkeys(runner.instruction for runner in self.living().values())
        if len(told) > 1:
            raise LockstepError(f"episodes of one batch have different instructions ({'; '.join(told)}): --batch 1")
        return next(iter(told), "")

    def outcome(self) -> ModeResult:
        """The result of all episodes, once none is left."""
        return ModeResult.join([ModeResult(list(self.finished), self._outcome.staleness, self._outcome.age_ns)])

    def noise(self, shape: tuple[int, ...], request: int) -> Tensor:
        """The noise of every episode for its request of this number, [E, *shape] (rule 7 of docs/pipeline.md)."""
        if request >= REQUESTS_PER_EPISODE:
            raise LockstepError(f"more than {REQUESTS_PER_EPISODE} requests in one episode")
        bases = [runner.seed * REQUESTS_PER_EPISODE for runner in self._runners]
        return torch.stack([noise_tape(shape, NOISE_SEED, base + request) for base in bases])

    def observe(self, now_ns: int, soonest_ns: int) -> None:
        """Take new sensor values. soonest_ns: no frame begins before; images that no frame can see are not rendered."""
        image = soonest_ns < now_ns + self._reach_ns
        for runner, _ in self._each(lambda runner: runner.observe(now_ns, image)):
            self._leave_if_done(runner)
        self._latched = None

    def seen(self, now_ns: int) -> Latched | None:
        """The newest observation of all episodes, as of now; of a finished one the last that it had. The same object
        until the next one comes. None if no episode is left."""
        living = self.living()
        if self._latched is None and living:
            new = {row: to_latched(runner.latch(now_ns), self._checkpoint) for row, runner in living.items()}
            origin, *others = (one.origin for one in new.values())
            if any(other.mono_ns != origin.mono_ns for other in others):
                raise LockstepError("episodes of one batch saw different instants")
            self._rows |= new
            unseen = next(iter(new.values()))  # for the row of an episode that was lost before it saw anything
            every = [self._rows.get(row, unseen) for row in range(len(self._runners))]
            references = [one.origin.reference for one in every if one.origin.reference is not None]
            self._latched = Latched(
                images=torch.cat([one.images for one in every]),
                state=torch.cat([one.state for one in every]),
                origin=replace(origin, reference=np.concatenate(references) if references else None),
            )
        return self._latched

    def take(self, emission: Emission | None, now_ns: int) -> None:
        """Give each living episode its row of every chunk that a frame has finished."""
        for each in () if emission is None else emission.every:
            if len(each.actions) != len(self._runners):
                raise LockstepError(f"{len(each.actions)} rows of actions for {len(self._runners)} episodes")
            for row, runner in self.living().items():
                chunk = to_chunk(each, _IDENTITY, row)
                runner.offer(chunk, now_ns)
                self._outcome.aged(chunk.provenance.context_age_ns)

    def tick(self, now_ns: int) -> None:
        """One control step of all living episodes."""
        for runner, age_steps in self._each(lambda runner: runner.tick(now_ns, self.frames)):
            if age_steps is not None:
                self._outcome.acted(age_steps)
            self._leave_if_done(runner)

    def _each(self, do: Callable[[EpisodeRunner], T]) -> list[tuple[EpisodeRunner, T]]:
        """For every living runner, in order; where worlds are processes at the same time, so that all of them work."""
        runners = list(self.living().values())
        done = map(do, runners) if self._threads is None else self._threads.map(do, runners)
        return list(zip(runners, done, strict=True))

    def _leave_if_done(self, runner: EpisodeRunner) -> None:
        if runner.done:
            self.finished.append(runner.episode)
            self._worlds.end(runner.world)

    def close(self) -> None:
        """Close the worlds of the episodes that are not over; they may be in the middle of a step."""
        for runner in self.living().values():
            runner.world.close()
        if self._threads is not None:
            self._threads.shutdown()


Watch = Callable[[EpisodeRunners], None]  # called before the first control step and after each
