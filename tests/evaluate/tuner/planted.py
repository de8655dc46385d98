"""Planted durations and episodes for searches; everything else is the real thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.tuner import trials as trials_module
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.search import FRESH, Search
from auras_ros.evaluate.tuner.space import Space
from auras_ros.measure.durations import FrameDuration
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint

BASE = Plan("quick", mode="auras")
SPACE = Space(BASE, (1, 2), (1, 2, 4), alpha=(0.0, 0.5))
ANYTHING = Requirements()
SKILL = {1: 0.9, 2: 0.7, 4: 0.5}  # share of successes by pp_generation


class World:
    """Planted durations and episodes. slow: the whole machine takes that many times as long. seq: its share of
    successes. longer, better: by generation plan, how many times longer its frames are and how much more often it
    succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timed: list[str] = []
        self.played: Counter[tuple[str, int]] = Counter()
        self.charged_s: dict[str, float] = {}
        self.slow = 1.0
        self.longer: dict[str, float] = {}
        self.better: dict[str, float] = {}
        self.seq = 0.8
        self.together: list[set[str]] = []  # whose seq were timed in the same rounds
        self.luck = 0.0  # how much less often a plan succeeds on fresh seeds than on those of the search
        self.interrupt_at: int | None = None
        monkeypatch.setattr(trials_module, "measure_durations", self.measure)
        monkeypatch.setattr(trials_module, "play", self.play)

    def measure(self, checkpoint: Checkpoint, plans: Mapping[str, Plan], **rest: Any) -> dict[str, FrameDuration]:
        assert "seq" in plans or {plan.mode for plan in plans.values()} == {"seq"}  # beside every plan
        self.timed += [name for name, plan in plans.items() if plan.mode != "seq"]
        if "seq" not in plans:
            self.together.append(set(plans))
        return {name: FrameDuration(self.slow * self.seconds(plan), 8) for name, plan in plans.items()}

    def seconds(self, plan: Plan) -> float:
        whole_s = 0.1 * self.longer.get(plan.generation, 1.0)
        return whole_s if plan.mode == "seq" else whole_s / plan.pp_generation * (1.0 + plan.alpha)

    def play(
        self,
        checkpoint: Checkpoint,
        plan: Plan,
        seeds: Iterable[int],
        task: Task,
        timing: Charged,
        plain: bool,
        watch: object,
        worlds: object,
    ) -> ModeResult:
        assert not plain
        outcome, name = ModeResult(), str(plan)
        self.charged_s[name] = timing.durations_ns[plan.mode] / 1e9
        for seed in seeds:
            self.played[name, seed] += 1
            if self.interrupt_at is not None and sum(self.played.values()) > self.interrupt_at:
                raise KeyboardInterrupt
            share = self.seq if plan.mode == "seq" else SKILL[plan.pp_generation] + (0.1 if plan.alpha else 0.0)
            share += self.better.get(plan.generation, 0.0)
            share -= self.luck if plan.mode != "seq" and seed >= FRESH else 0.0
            outcome.episodes.append(EpisodeRecord(seed, 3 * seed % 10 < round(10 * share), 10))
            outcome.acted(plan.pp_perception)
        return outcome

    def most(self) -> Counter[str]:
        """Episodes of each plan."""
        return Counter(name for name, _ in self.played)


Make = Callable[..., Search]
