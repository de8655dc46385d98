"""Demonstrations in a world: the expert alone, or the expert taking over from a policy.

Only episodes that succeed are kept. The action recorded is always the expert's; what is executed may be disturbed,
so that the policy also sees how to come back from where the expert would not have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from auras_ros.report.result import Say
from auras_ros.sim.world import World

EXPERT_STEPS = 250
TAKEOVER_STEPS = 160
DISTURBED_SHARE = 0.04  # of steps at which a disturbance begins

Array = NDArray[np.float64]
Act = Callable[[NDArray[np.uint8], Array], Array]  # (images of all cameras, state) -> action, stateful
Moment = tuple[NDArray[np.uint8], Array, Array, Array]
WorldT = TypeVar("WorldT", bound=World)
SolvedT = TypeVar("SolvedT", bound=World, contravariant=True)
Make = Callable[[np.random.Generator], WorldT]  # the world of the next episode


class Expert(Protocol[SolvedT]):
    """Solves a world of which it sees everything."""

    def reset(self) -> None:
        """Before an episode."""

    def act(self, world: SolvedT) -> Array:
        """The action [channels], which may be beyond their bounds."""

    def truth(self, world: SolvedT) -> Array:
        """What no sensor tells, recorded to train on."""


@dataclass(frozen=True)
class Demonstrations:
    """N frames in episode order: images uint8 [N, cameras, height, width, 3], state [N, S], truth [N, T], actions
    [N, channels], episode [N] (increasing)."""

    images: NDArray[np.uint8]
    state: NDArray[np.float32]
    truth: NDArray[np.float32]
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
        images, state, truth, actions = (np.array(column) for column in columns)
        episode = np.array([number for number, frames in enumerate(kept) for _ in frames], np.int64)
        return cls(images, state.astype(np.float32), truth.astype(np.float32), actions.astype(np.float32), episode)

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
    """One batch of episodes. disturbance: spread of the offset added to a few executed actions, which then stay by
    `margin` within the channels' bounds; both in the channels' unit. sensors: what is recorded of the world's state;
    empty: all."""

    episodes: int
    seed: int
    disturbance: float = 0.0
    margin: float = 0.0
    sensors: tuple[str, ...] = ()


class _Disturbance:
    """A random offset held for a few steps now and then."""

    def __init__(self, spread: float, random: np.random.Generator, low: Array, high: Array) -> None:
        """low, high: bounds [channels] of a disturbed action."""
        self.spread, self.random, self.left = spread, random, 0
        self.low, self.high, self.offset = low, high, np.zeros(len(low))

    def apply(self, action: Array) -> Array:
        if self.spread > 0 and self.left == 0 and self.random.random() < DISTURBED_SHARE:
            self.left = int(self.random.integers(1, 5))
            self.offset = self.random.normal(0, self.spread, len(self.offset))
        if self.left == 0:
            return action
        self.left -= 1
        return np.clip(action + self.offset, self.low, self.high)


def _bounds(world: World) -> tuple[Array, Array]:
    low, high = np.array([(each.low, each.high) for each in world.channels]).T
    return low, high


def _seen(world: World, sensors: Sequence[str]) -> tuple[NDArray[np.uint8], Array]:
    """Images of all cameras, and the state."""
    images = [world.image(each.name, each.height, each.width) for each in world.cameras]
    state = world.state()
    return np.stack(images), np.array([state[name] for name in sensors or state])


def _demonstrate(
    world: WorldT, expert: Expert[WorldT], disturbance: _Disturbance, sensors: Sequence[str], steps: int
) -> list[Moment] | None:
    """Run the expert from where the world is; the frames if it succeeds, else None."""
    expert.reset()
    frames: list[Moment] = []
    for _ in range(steps):
        action = np.clip(expert.act(world), *_bounds(world))
        frames.append((*_seen(world, sensors), expert.truth(world), action))
        if world.step(disturbance.apply(action)).success:
            return frames
    return None


def expert_episodes(
    recipe: DemonstrationSettings, make: Make[WorldT], expert: Expert[WorldT], progress: Say
) -> Demonstrations:
    """The expert from random starts."""
    random, kept = np.random.default_rng(recipe.seed), list[list[Moment]]()
    for episode in range(recipe.episodes):
        world = make(random)
        world.reset(recipe.seed + episode)
        low, high = _bounds(world)
        disturbance = _Disturbance(recipe.disturbance, random, low + recipe.margin, high - recipe.margin)
        frames = _demonstrate(world, expert, disturbance, recipe.sensors, EXPERT_STEPS)
        if frames:
            kept.append(frames)
        progress(f"episode {episode + 1}/{recipe.episodes}, {len(kept)} kept")
    return Demonstrations.of(kept)


def takeover_episodes(
    recipe: DemonstrationSettings,
    make: Make[WorldT],
    expert: Expert[WorldT],
    policy: Callable[[], Act],
    progress: Say,
) -> Demonstrations:
    """A policy drives for 10 to 160 steps; where it has not finished, the expert takes over and is recorded."""
    random, kept, finished = np.random.default_rng(recipe.seed), list[list[Moment]](), 0
    sensors = recipe.sensors
    for episode in range(recipe.episodes):
        world, act = make(random), policy()
        world.reset(recipe.seed + episode)
        bounds, steps = _bounds(world), int(random.integers(10, 160))
        if any(world.step(np.clip(act(*_seen(world, sensors)), *bounds)).success for _ in range(steps)):
            finished += 1
        elif frames := _demonstrate(world, expert, _Disturbance(0.0, random, *bounds), sensors, TAKEOVER_STEPS):
            kept.append(frames)
        progress(f"episode {episode + 1}/{recipe.episodes}, policy finished {finished}, {len(kept)} taken over")
    return Demonstrations.of(kept)
