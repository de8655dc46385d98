"""What the lockstep tests share: recorded tables, scripted executors, and a tiny policy that plays Push-T."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from auras_ros.clock import SchedulerClock
from auras_ros.evaluate import lockstep
from auras_ros.evaluate.episode_runner import Task
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, Ledger
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import StepResult
from auras_ros.sim.worlds import find
from auras_ros.train.pusht_task import PUSHT
from tests.policies import tiny

MS = 1_000_000
DT = 100 * MS
HORIZON = 16


class Recorder(PushTWorld):
    """A real table that notes what it is told. wins: seed -> the step that is to be a success."""

    def __init__(self, wins: dict[int, int], **options: Any) -> None:
        super().__init__(**options)
        self.wins = wins

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.seed = seed
        self.actions: list[NDArray[np.float64]] = []
        self.agents: list[NDArray[np.float64]] = []
        self.images = 0

    def step(self, action: NDArray[np.float64]) -> StepResult:
        self.agents.append(self.agent)
        self.actions.append(np.array(action))
        outcome = super().step(action)
        win = self.wins.get(self.seed)
        return outcome if win is None else replace(outcome, success=len(self.actions) == win)

    def image(self, camera: str = "top", height: int = 96, width: int = 96) -> NDArray[np.uint8]:
        self.images += 1
        return super().image(camera, height, width)


class Tables:
    """Every table that was set up while this was in place, by seed. One play at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wins: dict[int, int] | None = None) -> None:
        self.made: list[Recorder] = []

        def world(task: Task) -> PushTWorld:
            self.made.append(Recorder(wins or {}, **vars(find(task.sim).options)))
            return self.made[-1]

        monkeypatch.setattr(Task, "world", world)

    def take(self) -> dict[int, Recorder]:
        """Those of the play that has just ended."""
        taken, self.made = {world.seed: world for world in self.made}, []
        return taken


def same(one: dict[int, Recorder], other: dict[int, Recorder], atol: float = 0.0) -> None:
    """The same tables were told the same, action by action."""
    assert one.keys() == other.keys()
    for seed, world in one.items():
        assert len(world.actions) == len(other[seed].actions)
        np.testing.assert_allclose(world.actions, other[seed].actions, rtol=0, atol=atol)


def tiny_checkpoint(**changes: Any) -> Checkpoint:
    """A random policy whose actions lie on the table."""
    statistics = {"kind": "min_max", "lower": [0.0, 0.0], "upper": [512.0, 512.0]}
    return tiny.checkpoint(statistics=statistics, **changes)


def scripted_checkpoint(**changes: Any) -> Any:
    """What lockstep asks of a checkpoint, without a network."""
    given = {"spec": PUSHT.spec, "contract": PUSHT.contract, "horizon": HORIZON, "language": None}
    policy = SimpleNamespace(noise_shape=(3,), steps=2)
    shape = SimpleNamespace(example=lambda batch, random: (torch.zeros(batch), torch.zeros(batch)))
    trained = SimpleNamespace(architecture=shape)
    return SimpleNamespace(**given | changes, trained=trained, policy=lambda plan: policy)


@dataclass
class Frame:
    """What a scripted worker's frame was given and when."""

    worker: str
    began_ns: int
    seen: Latched
    ended_ns: int = -1
    actions: NDArray[np.float64] | None = None


class ScriptedWorker:
    """Chunk k holds targets that no other chunk has, all near the middle. Only newer observations are wanted."""

    emits = True

    def __init__(self, name: str, executor: Scripted) -> None:
        self.name, self._executor = name, executor
        self._frame: Frame | None = None

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._executor.ledger.would_admit(None if seen is None else seen.origin, now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        assert seen is not None
        self._number = self._executor.ledger.admit(seen.origin, now_ns, self._executor.ledger.epoch)
        assert self._number is not None
        self._executor.tapes.append(self._executor.noise(self._number))
        self._frame = Frame(self.name, now_ns, seen)
        self._executor.script.frames.append(self._frame)

    def run(self) -> None:
        assert self._frame is not None
        assert self._frame.actions is None
        steps = np.arange(HORIZON) / 100
        k = float(self._number or 0)
        self._frame.actions = np.stack([250 + k + steps, 260 - k - steps], 1)

    def end(self, now_ns: int) -> Emission | None:
        frame, self._frame = self._frame, None
        assert frame is not None
        assert frame.actions is not None
        frame.ended_ns = now_ns
        assert self._executor.clock.now_ns() == now_ns
        rows = np.repeat(frame.actions[None], self._executor.batch, axis=0)
        return Emission(
            actions=torch.from_numpy(self._executor.script.spoil(rows)),
            request=self._number or 0,
            frame=len(self._executor.script.frames),
            epoch=0,
            contexts=(frame.seen.origin,),
            stage_ns=(frame.began_ns,),
            latched_ns=frame.began_ns,
            perceived_ns=now_ns,
            generated_ns=now_ns,
        )


class Scripted:
    """Stands where an executor does."""

    def __init__(self, script: Script, plan: Plan, noise: Any, clock: SchedulerClock, batch: int) -> None:
        self.script, self.plan, self.noise, self.clock, self.batch = script, plan, noise, clock, batch
        self.ledger = Ledger(round(plan.frame_period_ms * 1e6) if plan.mode == "par" else 0)
        names = [f"worker{i}" for i in range(plan.concurrency)] if plan.mode == "par" else ["frame"]
        self.workers = tuple(ScriptedWorker(name, self) for name in names)
        self.tapes: list[torch.Tensor] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Script:
    """Puts scripted executors where lockstep makes its own, and keeps what they were given."""

    frames: list[Frame] = field(default_factory=list)
    executors: list[Scripted] = field(default_factory=list)
    bad_row: tuple[int, int, float] | None = None  # step, channel, value

    def install(self, monkeypatch: pytest.MonkeyPatch, batch: int) -> Script:
        def make(context: RunContext) -> Scripted:
            self.frames.clear()
            self.executors.append(Scripted(self, context.plan, context.noise, context.clock, batch))
            return self.executors[-1]

        monkeypatch.setattr(lockstep, "make_executor", make)
        return self

    def spoil(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.bad_row is not None:
            step, channel, value = self.bad_row
            rows[:, step, channel] = value
        return rows

    def chunk(self, k: int) -> NDArray[np.float64]:
        actions = self.frames[k].actions
        assert actions is not None
        return actions


def indices(world: Recorder, frames: Sequence[Frame], hold_ok: bool = True) -> list[tuple[int, int] | None]:
    """For each step of a table which chunk and which of its actions it got; None for a hold."""
    found: list[tuple[int, int] | None] = []
    for action in world.actions:
        at = [
            (k, i)
            for k, frame in enumerate(frames)
            if frame.actions is not None
            for i in range(HORIZON)
            if np.abs(frame.actions[i] - action).max() < 1e-9
        ]
        assert len(at) <= 1
        assert at or hold_ok
        found.append(at[0] if at else None)
    return found
