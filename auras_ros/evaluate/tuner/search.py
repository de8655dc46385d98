"""The hierarchical search of Auras 4.3.2, and the choice of a plan from its results.

1. seq of every checkpoint and generation plan is played on all seeds; the best one is what seq means in requirements.
2. Every plan of the grids is timed; one that misses the rate, the age or the horizon is not played. 3. The others are
played on a few seeds, the better half on twice as many, and so on (successive halving): a plan that fails early costs
little. 4. The skew of the best plan is tuned. 5. The chosen plan, which may be a seq, and the best seq are played again
on new seeds, because the best of many plans is partly lucky on its seeds. A plan that fails there is not returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from auras_ros.evaluate.pace import PLAY, TIME, Generation, Kind, Pace
from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.tuner.candidate import Candidate, merit
from auras_ros.evaluate.tuner.space import Space
from auras_ros.evaluate.tuner.trials import SEQ, Trials, time_seqs
from auras_ros.pipeline.plan import Plan

INTERRUPTED = "interrupted before it was over"
FRESH = 1_000_000  # offset of the confirmation's seeds from the search's
LEAST_EPISODES, LEAST_SUCCESSES = 16, 4  # needed before a plan is written to a robot's config
Explore = Callable[["Search"], None]


@dataclass(frozen=True)
class Effort:
    """first, episodes: number of seeds in the first and in the last round of halving; confirm: number of new seeds for
    the chosen plan (0: none). Raises SettingsError, naming the field."""

    first: int = 24
    episodes: int = 96
    confirm: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.episodes:
            raise SettingsError(f"first: must be in [1, episodes = {self.episodes}], got {self.first}")
        if self.confirm < 0:
            raise SettingsError(f"confirm: must not be negative, got {self.confirm}")

    def rounds(self) -> list[int]:
        """How many seeds a plan has been played on after each round."""
        sizes = [self.first]
        while sizes[-1] < self.episodes:
            sizes.append(min(2 * sizes[-1], self.episodes))
        return sizes


@dataclass(frozen=True)
class SearchResult:
    """candidates: every seq, and all plans that were timed. chosen: None if none is good enough. confirmed: the chosen
    plan on new seeds; unconfirmed: why it is not good enough there, or that this was interrupted. partial: interrupted.
    """

    candidates: Sequence[Candidate]
    chosen: Candidate | None
    confirmed: Candidate | None
    partial: bool
    unconfirmed: str = ""
    seq: Candidate | None = None  # the best one, which is the baseline, as far as it was played

    @property
    def too_few(self) -> str:
        """Why there are too few episodes to run the chosen plan on a robot; empty if there are enough."""
        one = self.confirmed or self.chosen
        if one is None:
            return ""
        wins = round((one.success or 0.0) * one.episodes)
        if one.episodes < LEAST_EPISODES:
            return f"it was played on {one.episodes} episodes; at least {LEAST_EPISODES} are needed"
        if wins < LEAST_SUCCESSES:
            return f"it succeeded {wins} times in {one.episodes}; at least {LEAST_SUCCESSES} are needed"
        return ""

    @property
    def found(self) -> Candidate | None:
        """The plan to use: chosen, and good enough on new seeds."""
        return None if self.unconfirmed else self.chosen

    def summary(self) -> dict[str, float]:
        found: dict[str, float] = {"plans": len(self.candidates)}
        for name, one in (("chosen", self.chosen), ("confirmed", self.confirmed)):
            measured = {} if one is None else vars(one)
            for key in ("speedup", "oldest_ms", "success", "above_seq", "above_low", "above_high"):
                if measured.get(key) is not None:
                    found[f"{name}_{key}"] = measured[key]
        if self.confirmed is not None:
            found["confirmed"] = float(not self.unconfirmed)
        return found


class Search:
    """`run` explores and chooses. seed: of the first episode. pace: that of all trials."""

    def __init__(
        self, trials: Sequence[Trials], fresh: Sequence[Trials], space: Space, effort: Effort, seed: int, pace: Pace
    ) -> None:
        """trials: of each checkpoint and generation plan. fresh: the same with stores of their own, for the
        confirmation. space: what their plans have in common but the generation plan."""
        self.trials, self._fresh = ({each.generation: each for each in some} for some in (trials, fresh))
        self.space, self.effort, self.pace = space, effort, pace
        self._seeds = range(seed, seed + effort.episodes)
        self._seen: dict[tuple[Generation, str], Plan] = {}

    def run(self, explore: Explore) -> SearchResult:
        """Explore, choose and confirm. Ctrl-C ends it with the results so far."""
        chosen = confirmed = None
        partial, unconfirmed = False, ""
        try:
            explore(self)
            chosen = self.choose()
            if chosen is not None and self.effort.confirm:
                confirmed = self._confirm(chosen)
                unconfirmed = self._wanting(confirmed)
        except KeyboardInterrupt:
            self._compare_with_the_best_seq()
            partial, chosen = True, self.choose()
            if chosen is not None and self.effort.confirm:
                unconfirmed = INTERRUPTED
        baseline = self._compare_with_the_best_seq()
        return SearchResult(self.candidates(), chosen, confirmed, partial, unconfirmed, baseline)

    @property
    def lost(self) -> list[dict[str, Any]]:
        """The episodes that have lost their world: checkpoint, plan, seed, and why."""
        return [
            {"checkpoint": name, "plan": str(each.seq_plan) if plan == SEQ else plan, "seed": seed, "why": why}
            for some in (self.trials, self._fresh)
            for (name, _), each in some.items()
            for plan, seed, why in each.lost
        ]

    def grid(self, generation: Generation) -> list[Plan]:
        """The plans with evenly spread work. Raises SettingsError if there are none."""
        trials = self.trials[generation]
        return replace(self.space, base=trials.settings.base).grid(trials.policy)

    def skewed(self, one: Candidate) -> list[Plan]:
        """The same stages with other skews."""
        return list(self.space.skewed(self.trials[one.generation].policy, one.plan))

    def time(self, generation: Generation, plans: Sequence[Plan]) -> list[Candidate]:
        """Time the plans. Returns those that are worth playing."""
        trials = self.trials[generation]
        self._seen |= {(generation, str(plan)): plan for plan in plans}
        trials.time(plans)
        return [one for plan in plans if not (one := trials.candidate(plan)).refused]

    def play(self, one: Candidate, episodes: int) -> Candidate:
        """Play it on the first `episodes` seeds. Returns it with its measurements."""
        trials, seeds = self.trials[one.generation], self._seeds[:episodes]
        trials.play(one.plan, seeds)
        return trials.candidate(one.plan, seeds)

    def candidates(self) -> list[Candidate]:
        """seq and every plan that was timed, of all checkpoints and generation plans, the best first."""
        timed = [each.candidate(each.seq_plan, self._seeds) for each in self.trials.values() if each.any_timed]
        timed += [
            self.trials[generation].candidate(plan, self._seeds)
            for (generation, name), plan in self._seen.items()
            if self.trials[generation].is_timed(name)
        ]
        return sorted(map(self._finished, timed), key=merit, reverse=True)

    def _finished(self, one: Candidate) -> Candidate:
        """Marks plans that successive halving dropped, and what an interrupted search has not played to the end."""
        if one.refused or one.tried >= self.effort.episodes:
            return one
        what = "dropped" if one.plan.mode == "auras" else "interrupted"
        return replace(one, refused="not played" if not one.tried else f"{what} after {one.episodes} episodes")

    def choose(self) -> Candidate | None:
        """The best of the plans that were played to the end and meet the requirements."""
        played = (one for one in self.candidates() if not one.refused and one.success is not None)
        return next((one for one in played if not self._wanting(one)), None)

    def expect(self, left: Sequence[tuple[Generation, Plan]], sizes: Sequence[int]) -> None:
        """Notes what is ahead, at most, and shows what is known of it from now on. left: the plans that are played
        next. sizes: seeds that they have been played on after this round, then those of the better half after each
        later one."""
        self._seen |= {(generation, str(plan)): plan for generation, plan in left}
        ahead: defaultdict[Kind, float] = defaultdict(float)
        for generation, plan in left:
            trials = self.trials[generation]
            ahead[TIME, generation] += not trials.is_timed(str(plan))
            ahead[PLAY, generation] += trials.missing(plan, self._seeds[: sizes[0]])
        plans, later = len(left), len(self.space.alpha) * self.effort.episodes + 2 * self.effort.confirm
        for before, after in pairwise(sizes):
            plans = better_half(plans)
            later += plans * (after - before)
        for generation, _ in left:  # as if all generation plans were pruned alike
            ahead[PLAY, generation] += later / len(left)
        for generation, trials in self.trials.items():
            ahead[PLAY, generation] += trials.missing(trials.seq_plan, self._seeds)
        self.pace.ahead = ahead

    def play_seqs(self) -> None:
        """Time seq of every checkpoint and generation plan and play it on all seeds. The best one is the baseline."""
        time_seqs(list(self.trials.values()))
        for each in self.trials.values():
            each.play_seq(self._seeds)
        self._compare_with_the_best_seq()

    def _compare_with_the_best_seq(self) -> Candidate | None:
        """Makes the most successful seq on the seeds of the search the baseline of all trials. Returns it; None before
        it was timed."""
        every = [each for each in self.trials.values() if each.any_timed]
        if not every:
            return None
        best = max(every, key=lambda each: merit(replace(each.candidate(each.seq_plan, self._seeds), refused="")))
        for generation, each in self.trials.items():
            each.baseline, self._fresh[generation].baseline = best, self._fresh[best.generation]
        return best.candidate(best.seq_plan, self._seeds)

    def _wanting(self, one: Candidate) -> str:
        requirements = self.trials[one.generation].settings.requirements
        return requirements.after_playing(one.success or 0.0, one.above_seq or 0.0)

    def _confirm(self, chosen: Candidate) -> Candidate:
        first, fresh = self._seeds.start + FRESH, self._fresh[chosen.generation]
        baseline = self.trials[chosen.generation].baseline
        fresh.baseline.time_as(baseline, baseline.seq_plan)
        fresh.time_as(self.trials[chosen.generation], chosen.plan)
        seeds = range(first, first + self.effort.confirm)
        self.pace.ahead = defaultdict(float)
        for each, plan in {(fresh.baseline, baseline.seq_plan), (fresh, chosen.plan)}:
            self.pace.ahead[PLAY, each.generation] += each.missing(plan, seeds)
        fresh.play(chosen.plan, seeds)
        return fresh.candidate(chosen.plan, seeds)


def halving(search: Search) -> None:
    """Explore the grids of all checkpoints and generation plans together, then the skew of the best plan."""
    grids, rounds = {generation: search.grid(generation) for generation in search.trials}, search.effort.rounds()
    search.expect([(generation, plan) for generation, grid in grids.items() for plan in grid], rounds)
    search.play_seqs()
    left = [one for generation, grid in grids.items() for one in search.time(generation, grid)]
    for number, episodes in enumerate(rounds):
        search.expect([(one.generation, one.plan) for one in left], rounds[number:])
        played = sorted((search.play(one, episodes) for one in left), key=merit, reverse=True)
        left = played if episodes == rounds[-1] else played[: better_half(len(played))]
    for best in left[:1]:
        for skewed in search.time(best.generation, search.skewed(best)):
            search.play(skewed, search.effort.episodes)


def better_half(plans: int) -> int:
    """How many of so many plans are played on."""
    return min(plans, max(2, -(-plans // 2)))
