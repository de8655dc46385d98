"""A world in lockstep: the nodes' own preprocessing, executor and alignment, with time counted in control steps.

One call plays one mode on one clock for many seeds. Episodes that share a schedule run through one executor as a batch,
because a row of a batch costs far less than a single call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import torch

from auras_ros.clock import VirtualClock
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.episode_runners import EpisodeRunners, Watch
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.seams import Seams
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.loading.pipeline import example
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.policy import PromptedPolicy

BATCH = 64
Timing = Paused | Charged  # how time passes for the world while the executor computes


def play(
    checkpoint: Checkpoint,
    plan: Plan,
    seeds: Iterable[int],
    task: Task,
    timing: Timing,
    plain: bool = False,
    watch: Watch = lambda runners: None,
    seams: Seams | None = None,
    worlds: WorldPool | None = None,
) -> ModeResult:
    """Play all seeds as one batch, until the last episode ends. plain: chunks run from index 0 whenever they come.
    seams: optional counter of the seams of all commands. worlds: to play in, and to keep for the next call; None makes
    new ones and closes them. An episode whose world is lost ends with the reason, the others go on.

    A policy with language is told what the world says, also when it says something else in an episode. Raises
    LockstepError, PlanError, CheckpointError, PromptError, and ValueError for invalid settings.
    """
    torch.set_num_threads(1)  # for small networks, synchronising threads costs far more than they gain
    start_ns = checkpoint.contract.dt_ns
    policy = checkpoint.policy(plan.generation)
    group = list(seeds)
    pool = WorldPool(task.world) if worlds is None else worlds
    runners = EpisodeRunners(checkpoint, task, group, plain, start_ns, seams, pool)
    prompt = _Prompt(checkpoint, policy, runners)
    prompt.follow()
    if isinstance(timing, Charged):
        plan = timing.paced(plan)
    context = RunContext(
        policy,
        plan,
        lambda request: runners.noise(policy.noise_shape, request),
        example(checkpoint, len(group)),
        VirtualClock(start_ns),
        contract=checkpoint.contract,
    )
    executor = make_executor(context)

    def stepped(runners: EpisodeRunners) -> None:
        if prompt.follow():
            executor.reset()  # rule 9 of docs/pipeline.md
        watch(runners)

    try:
        watch(runners)
        timing.play(executor, runners, start_ns, stepped)
    finally:
        executor.close()
        runners.close()
        if worlds is None:
            pool.close()
    return runners.outcome()


class _Prompt:
    """The policy's, as the world's instruction is at the moment. A world that says nothing changes no prompt."""

    def __init__(self, checkpoint: Checkpoint, policy: LoadedPolicy, runners: EpisodeRunners) -> None:
        self._language, self._policy, self._runners = checkpoint.language, policy, runners
        self._told = ""

    def follow(self) -> bool:
        """Whether there is another one than before. Raises PromptError if it cannot be used."""
        if self._language is None or not isinstance(self._policy, PromptedPolicy):
            return False
        instruction = self._runners.instruction
        if instruction in ("", self._told):
            return False
        self._policy.set_prompt(torch.tensor(list(self._language.ids(instruction)), dtype=torch.int64))
        self._told = instruction
        return True


def run_episodes(
    checkpoint: Checkpoint,
    plan: str,
    seeds: Iterable[int],
    execute_steps: int,
    max_steps: int = 300,
    report: Callable[[list[EpisodeRecord]], None] = lambda episodes: None,
    batch: int = BATCH,
    sim: str = "pusht",
) -> list[EpisodeRecord]:
    """Play generation plan `plan` in seq on the paused clock, with a new chunk every `execute_steps` control steps.

    Returns the episodes by seed. `report` is called with all finished episodes, before the first control
    step of a group and after each.
    """
    if not 1 <= execute_steps <= checkpoint.horizon:
        raise ValueError(f"execute_steps must be in [1, {checkpoint.horizon}], got {execute_steps}")
    done: list[EpisodeRecord] = []

    def watch(runners: EpisodeRunners) -> None:
        report([*done, *runners.finished])

    task, timing = Task(sim, max_steps), Paused(execute_steps)
    worlds = WorldPool(task.world)
    try:
        for group in grouped(seeds, batch):
            done += play(checkpoint, Plan(plan), group, task, timing, watch=watch, worlds=worlds).episodes
    finally:
        worlds.close()
    return done


def grouped(seeds: Iterable[int], size: int) -> Iterable[list[int]]:
    """The seeds in groups of at most `size`. Raises ValueError for a size below 1."""
    if size < 1:
        raise ValueError(f"batch must be at least 1, got {size}")
    rest = iter(seeds)
    while group := list(islice(rest, size)):
        yield group
