"""Demonstrations on Push-T: the expert alone, the expert on a drifting tee, the expert taking over from a policy.

Only episodes that succeed are kept. The action recorded is always the expert's; what is executed may be disturbed,
so that the policy also sees how to come back from where the expert would not have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from auras_ros.report.result import Say
from auras_ros.sim.pusht import SIZE_PX, PushTWorld
from auras_ros.train.push_table import PushTable
from auras_ros.train.pusht_expert import PushExpert

EXPERT_STEPS = 250
TAKEOVER_STEPS = 160
DISTURBED_SHARE = 0.04  # of steps at which a disturbance begins
WALL_PX = 15.0

Act = Callable[[NDArray[np.uint8], NDArray[np.float64]], NDArray[np.float64]]  # (image, agent) -> target, stateful
Moment = tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Demonstrations:
    """N frames in episode order: images uint8 [N, 96, 96, 3], agent [N, 2] px, tee [N, 3], actions [N, 2] px,
    episode [N] (increasing)."""

    images: NDArray[np.uint8]
    agent: NDArray[np.float32]
    tee: NDArray[np.float32]
    actions: NDArray[np.float32]
    episode: NDArray[np.int64]

    def save(self, path: Path) -> None:
        temporary = path.with_suffix(".partial.npz")
        np.savez(temporary, **{f.name: getattr(self, f.name) for f in fields(self)})
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Demonstrations:
        with np.load(path, allow_pickle=False) as data:
            return cls(**{f.name: data[f.name] for f in fields(cls)})

    @classmethod
    def of(cls, kept: Sequence[Sequence[Moment]]) -> Demonstrations:
        """The frames of these episodes."""
        columns = list(zip(*(frame for episode in kept for frame in episode), strict=True)) or [()] * 4
        images, agent, tee, actions = (np.array(column) for column in columns)
        episode = np.array([number for number, frames in enumerate(kept) for _ in frames], np.int64)
        return cls(images, agent.astype(np.float32), tee.astype(np.float32), actions.astype(np.float32), episode)

    @classmethod
    def join(cls, parts: list[Demonstrations]) -> Demonstrations:
        """One after the other; episode numbers stay distinct."""
        parts = [part for part in parts if len(part.episode)]
        if not parts:
            raise ValueError("no episode to learn from: none of them succeeded")
        offsets = np.cumsum([0, *(int(p.episode[-1]) + 1 for p in parts[:-1])])
        joined = {
            f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls) if f.name != "episode"
        }
        episode = np.concatenate([p.episode + offset for p, offset in zip(parts, offsets, strict=True)])
        return cls(**joined, episode=episode)


@dataclass(frozen=True)
class DemonstrationSettings:
    """One batch of episodes. disturbance_px: spread of the offset added to a few executed actions.
    drift_max_px: the tee's drift is drawn from [0.1, this] px a step; 0 is the static task."""

    episodes: int
    seed: int
    disturbance_px: float = 20.0
    drift_max_px: float = 0.0


class _Disturbance:
    """A random offset held for a few steps now and then."""

    def __init__(self, spread_px: float, random: np.random.Generator) -> None:
        self.spread_px, self.random, self.left = spread_px, random, 0
        self.offset = np.zeros(2)

    def apply(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.spread_px > 0 and self.left == 0 and self.random.random() < DISTURBED_SHARE:
            self.left, self.offset = int(self.random.integers(1, 5)), self.random.normal(0, self.spread_px, 2)
        if self.left == 0:
            return action
        self.left -= 1
        return np.clip(action + self.offset, WALL_PX, SIZE_PX - WALL_PX)


def _demonstrate(world: PushTWorld, expert: PushExpert, disturbance: _Disturbance, steps: int) -> list[Moment] | None:
    """Run the expert from where the world is; the frames if it succeeds, else None."""
    expert.reset()
    frames: list[Moment] = []
    for _ in range(steps):
        action = np.clip(expert.act(world.agent, world.tee, world.goal), 0, SIZE_PX)
        frames.append((world.image(), world.agent, world.tee, action))
        if world.step(disturbance.apply(action)).success:
            return frames
    return None


def expert_episodes(recipe: DemonstrationSettings, table: PushTable, progress: Say) -> Demonstrations:
    """The expert from random starts; a drifting tee where the recipe says so."""
    random, expert, kept = np.random.default_rng(recipe.seed), PushExpert(table), list[list[Moment]]()
    for episode in range(recipe.episodes):
        drift = float(random.uniform(0.1, recipe.drift_max_px)) if recipe.drift_max_px else 0.0
        world = PushTWorld(drift_px=drift, success_coverage=0.92 if drift else None)
        world.reset(recipe.seed + episode)
        frames = _demonstrate(world, expert, _Disturbance(recipe.disturbance_px, random), EXPERT_STEPS)
        if frames:
            kept.append(frames)
        progress(f"episode {episode + 1}/{recipe.episodes}, {len(kept)} kept")
    return Demonstrations.of(kept)


def takeover_episodes(
    recipe: DemonstrationSettings, table: PushTable, policy: Callable[[], Act], progress: Say
) -> Demonstrations:
    """A policy drives for 10 to 160 steps; where it has not finished, the expert takes over and is recorded."""
    random, expert, kept = np.random.default_rng(recipe.seed), PushExpert(table), list[list[Moment]]()
    finished = 0
    for episode in range(recipe.episodes):
        world, act = PushTWorld(), policy()
        world.reset(recipe.seed + episode)
        steps = int(random.integers(10, 160))
        if any(world.step(np.clip(act(world.image(), world.agent), 0, SIZE_PX)).success for _ in range(steps)):
            finished += 1
        elif frames := _demonstrate(world, expert, _Disturbance(0.0, random), TAKEOVER_STEPS):
            kept.append(frames)
        progress(f"episode {episode + 1}/{recipe.episodes}, policy finished {finished}, {len(kept)} taken over")
    return Demonstrations.of(kept)
