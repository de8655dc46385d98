"""One control step of a batch, the same on both clocks: act, then remove the episodes that have ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.pipeline.modes import Executor

Watch = Callable[[EpisodeRunners], None]  # called after each control step


class Timing(Protocol):
    """How time passes for the world while the executor computes."""

    @property
    def name(self) -> str: ...

    def play(self, executor: Executor, episode_runners: EpisodeRunners, now_ns: int, watch: Watch) -> None:
        """Play from `now_ns` until no episode is left."""
        ...


def step(executor: Executor, episode_runners: EpisodeRunners, now_ns: int) -> None:
    rows = episode_runners.tick(now_ns)
    if rows is not None and len(rows):
        executor.keep(rows)
