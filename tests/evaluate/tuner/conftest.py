"""Searches on planted durations and episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.pace import Generation, Pace
from auras_ros.evaluate.tuner.record import EpisodeStore
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.search import Effort, Search
from auras_ros.evaluate.tuner.space import Space
from auras_ros.evaluate.tuner.trials import Trials, TrialSettings
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load
from tests.evaluate.tuner.planted import ANYTHING, BASE, SPACE, Make, World


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load(resources.checkpoint("pusht"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def make(checkpoint: Checkpoint) -> Make:
    def made(
        wanted: Requirements = ANYTHING,
        space: Space = SPACE,
        work: Path | None = None,
        confirm: int = 0,
        episodes: int = 40,
        generations: Sequence[Generation] = (("pusht", "quick"),),
    ) -> Search:
        keys = [{"sim": "planted", "checkpoint": name, "seq": plan} for name, plan in generations]
        each = [TrialSettings(replace(BASE, generation=plan), Task(), wanted, batch=7) for _, plan in generations]
        pace = Pace()
        both = [
            [
                Trials(checkpoint, settings, store, name=name, pace=pace)
                for (name, _), settings, store in zip(generations, each, EpisodeStore.open_all(keys, path), strict=True)
            ]
            for path in (work, None if work is None else work.with_suffix(".fresh"))
        ]
        return Search(both[0], both[1], space, Effort(10, episodes, confirm=confirm), 0, pace)

    return made
