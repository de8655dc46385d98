"""All modes on all clocks for all seeds, group by group: an interrupted evaluation is still paired and unbiased.

A group of seeds is played in every mode before the next group begins. An interrupted group is discarded: its episodes
that are already over are the short ones, and counting only these would be biased. With a `Work` on disk every completed
run of the group is kept for the next time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import BATCH, grouped, play
from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.settings import EvaluatedMode, EvaluationSettings
from auras_ros.evaluate.work import Work
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.report.result import Say, remaining


@dataclass
class Campaign:
    """`run` fills `outcomes` and `seeds`; both contain complete groups only, at any time."""

    checkpoint: Checkpoint
    settings: EvaluationSettings
    batch: int = BATCH
    say: Say = lambda text: None
    work: Work = field(default_factory=Work)
    outcomes: dict[tuple[str, str], ModeResult] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)

    def run(self, seeds: Sequence[int]) -> bool:
        """Play the seeds; False if it was interrupted (Ctrl-C) before the last group was done. An episode that has
        lost its world is in the outcomes with the reason."""
        groups = list(grouped(seeds, self.batch))
        runs = [(clock, one) for clock in self.settings.clocks for one in self.settings.contenders()]
        pace = _Pace(len(groups), [(clock, one.name) for clock, one in runs])
        worlds = WorldPool(self.settings.task.world)
        try:
            for group in groups:
                played = {(clock, one.name): self._play(clock, one, group, pace, worlds) for clock, one in runs}
                joined = {
                    run: ModeResult.join([self.outcomes.get(run, ModeResult()), new]) for run, new in played.items()
                }
                self.outcomes, self.seeds = joined, [*self.seeds, *group]
        except KeyboardInterrupt:
            return False
        finally:
            worlds.close()
        return True

    def _play(
        self, clock: str, contender: EvaluatedMode, group: list[int], pace: _Pace, worlds: WorldPool
    ) -> ModeResult:
        run = pace.begin(clock, contender.name)
        known = self.work.find((clock, contender.name), group)
        if known is not None:
            return known
        task, timing = self.settings.task, self.settings.timing(clock, group[0])
        plan, plain = contender.plan, contender.plain
        made = play(
            self.checkpoint, plan, group, task, timing, plain, lambda runners: self.say(pace.line(run, runners)),
            worlds=worlds,
        )  # fmt: skip
        pace.end(run)
        if not made.lost:  # else the same command plays it again
            self.work.add((clock, contender.name), made)
        return made


class _Begun(NamedTuple):
    """A run that has begun: its clock and mode, and when."""

    key: tuple[str, str]
    began_s: float


class _Pace:
    """The progress, and an estimate of the remaining time: a run of the same mode and clock takes as long as before."""

    def __init__(self, groups: int, runs: list[tuple[str, str]]) -> None:
        self._left = [run for _ in range(groups) for run in runs]
        self._total = len(self._left)
        self._took_s: dict[tuple[str, str], float] = {}

    def begin(self, clock: str, mode: str) -> _Begun:
        self._left.remove((clock, mode))
        return _Begun((clock, mode), time.monotonic())

    def end(self, run: _Begun) -> None:
        self._took_s[run.key] = time.monotonic() - run.began_s

    def line(self, run: _Begun, runners: EpisodeRunners) -> str:
        clock, name = run.key
        over = runners.finished
        won = sum(episode.success for episode in over)
        done, of = self._total - len(self._left), len(over) + len(runners.living())
        return (
            f"run {done} of {self._total}, {clock} {name}: {len(over)} of {of} episodes over, "
            f"{won} succeed, {remaining(self._left_s(run, runners.progress))}"
        )

    def _left_s(self, run: _Begun, progress: float) -> float:
        spent_s = time.monotonic() - run.began_s
        this_s = self._took_s.get(run.key, spent_s / max(progress, 1e-3))
        known = {**self._took_s, run.key: this_s}
        typical_s = sum(known.values()) / len(known)
        return max(0.0, this_s - spent_s) + sum(known.get(each, typical_s) for each in self._left)
