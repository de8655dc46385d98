"""All modes on all clocks for all seeds, group by group: an interrupted evaluation is still paired and unbiased.

A group of seeds is played in every mode before the next group begins. An interrupted group is discarded: its episodes
that are already over are the short ones, and counting only these would be biased. With a `Work` on disk every completed
run of the group is kept for the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import BATCH, grouped, play
from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.pace import PLAY, GroupPace, Pace
from auras_ros.evaluate.settings import EvaluatedMode, EvaluationSettings
from auras_ros.evaluate.work import Work
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.report.result import Say


@dataclass
class Campaign:
    """`run` fills `outcomes` and `seeds`; both contain complete groups only, at any time. pace: of what is still to be
    played."""

    checkpoint: Checkpoint
    settings: EvaluationSettings
    batch: int = BATCH
    say: Say = lambda text: None
    work: Work = field(default_factory=Work)
    pace: Pace = field(default_factory=Pace)
    outcomes: dict[tuple[str, str], ModeResult] = field(default_factory=dict, init=False)
    seeds: list[int] = field(default_factory=list, init=False)

    def run(self, seeds: Sequence[int]) -> bool:
        """Play the seeds; False if it was interrupted (Ctrl-C) before the last group was done. An episode that has
        lost its world is in the outcomes with the reason."""
        groups = list(grouped(seeds, self.batch))
        runs = [(clock, one) for clock in self.settings.clocks for one in self.settings.contenders()]
        for clock, one in runs:
            self.pace.ahead[PLAY, (clock, one.name)] += len(seeds)
        numbers, of = count(1), len(groups) * len(runs)
        worlds = WorldPool(self.settings.task.world)
        try:
            for group in groups:
                played = {
                    (clock, one.name): self._play(clock, one, group, f"run {next(numbers)} of {of}", worlds)
                    for clock, one in runs
                }
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
        self, clock: str, contender: EvaluatedMode, group: list[int], which: str, worlds: WorldPool
    ) -> ModeResult:
        run, kind = (clock, contender.name), (PLAY, (clock, contender.name))
        known = self.work.find(run, group)
        if known is not None:
            self.pace.ahead[kind] -= len(group)
            return known
        pace = GroupPace(self.pace, kind)

        def watch(runners: EpisodeRunners) -> None:
            over = runners.finished
            self.say(
                f"{which}, {' '.join(run)}: {len(over)} of {len(group)} episodes over, "
                f"{sum(episode.success for episode in over)} succeed{pace.left(runners)}"
            )

        task, timing = self.settings.task, self.settings.timing(clock, group[0])
        made = play(self.checkpoint, contender.plan, group, task, timing, contender.plain, watch, worlds=worlds)
        pace.end(made)
        if not made.lost:  # else the same command plays it again
            self.work.add(run, made)
        return made
