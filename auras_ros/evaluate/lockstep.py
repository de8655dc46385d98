"""Push-T in lockstep: the nodes' own preprocessing, executor and alignment, with time counted in control steps.

The world waits while a chunk is computed (the *paused* clock of design rule 12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from auras_ros.action import ActionStream
from auras_ros.observation import Assembler, Fault
from auras_ros.pipeline.seq import Sequential
from auras_ros.sim.pusht import CONTROL_DT_MS, PushTWorld
from auras_ros.sim.pusht_game import NAMES

REQUESTS_PER_EPISODE = 1_000  # each episode has its own stretch of the noise tape, so that seeds are paired


@dataclass(frozen=True)
class Episode:
    """How one seeded episode went. `steps` counts to success or to the limit."""

    seed: int
    success: bool
    steps: int
    best_coverage: float


class LockstepError(RuntimeError):
    """The runtime refused what lockstep gave it: a fault of the set-up, never of the policy."""


def run_episode(
    sequential: Sequential, world: PushTWorld, seed: int, execute_steps: int, max_steps: int = 300
) -> Episode:
    """One episode; a new chunk is requested every `execute_steps` control steps.

    Time is that of the executor's clock, which is to be a virtual one: it moves on by one step a step.
    """
    checkpoint = sequential.checkpoint
    contract, dt_ns = checkpoint.contract, checkpoint.contract.dt_ns
    if max_steps > REQUESTS_PER_EPISODE:
        raise ValueError(f"max_steps must be at most {REQUESTS_PER_EPISODE}, got {max_steps}")
    if not 1 <= execute_steps <= checkpoint.horizon:
        raise ValueError(f"execute_steps must be in [1, {checkpoint.horizon}], got {execute_steps}")
    _require(contract.names == NAMES, f"the world's channels are {NAMES}, the policy's {contract.names}")
    _require(contract.dt_ms == CONTROL_DT_MS, f"the world's step is {CONTROL_DT_MS} ms, the policy's {contract.dt_ms}")
    assembler = Assembler(checkpoint.spec, contract.dt_ms, contract.dt_ms, 0.0)
    stream = ActionStream(contract, dt_ns, max_chunk_age_ms=checkpoint.horizon * contract.dt_ms)
    world.reset(seed)
    sequential.reset(first_request=seed * REQUESTS_PER_EPISODE)
    best = 0.0
    start_ns = sequential.clock.now_ns()
    for step in range(max_steps):
        now_ns = start_ns + (step + 1) * dt_ns
        sequential.clock.sleep_until_ns(now_ns)
        _observe(assembler, world, now_ns)
        if step == 0:
            _require(stream.arm(now_ns, world.agent).ok, "arming refused")
        if step % execute_steps == 0:
            observation = assembler.latch(now_ns)
            if isinstance(observation, Fault):
                raise LockstepError(str(observation))
            verdict = stream.offer(sequential.run(observation).chunk, now_ns)
            _require(verdict.ok, f"chunk refused: {verdict.detail}")
        command = stream.tick(now_ns)
        _require(command.publish, "no command")
        outcome = world.step(command.values)
        best = max(best, outcome.coverage)
        if outcome.success:
            return Episode(seed, True, step + 1, best)
    return Episode(seed, False, max_steps, best)


def _observe(assembler: Assembler, world: PushTWorld, now_ns: int) -> None:
    for fault in (
        assembler.put_image(assembler.spec.cameras[0].name, world.image(), now_ns, now_ns),
        assembler.put_state(NAMES, world.agent, now_ns, now_ns),
    ):
        _require(fault is None, str(fault))


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise LockstepError(text)


def run_episodes(
    sequential: Sequential,
    seeds: Iterable[int],
    execute_steps: int,
    drift_px: float = 0.0,
    max_steps: int = 300,
    report: Callable[[list[Episode]], None] = lambda episodes: None,
) -> list[Episode]:
    """One episode a seed; `report` is called after each with all so far."""
    world = PushTWorld(drift_px=drift_px)
    episodes: list[Episode] = []
    for seed in seeds:
        episodes.append(run_episode(sequential, world, seed, execute_steps, max_steps))
        report(episodes)
    return episodes


def success_rate(episodes: list[Episode]) -> float:
    """Share of successful episodes; NaN for none."""
    return float(np.mean([e.success for e in episodes])) if episodes else float("nan")
