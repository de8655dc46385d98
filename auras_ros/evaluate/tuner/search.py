"""The hierarchical search of Auras 4.3.2, and the choice of a plan from its results.

1. Every plan of the grid is timed; one that misses the rate, the age or the horizon is not played. 2. The others are
played on a few seeds, the better half on twice as many, and so on (successive halving): a plan that fails early costs
little. 3. The skew of the best plan is tuned. 4. The chosen plan and seq are played again on new seeds, because the
best of many plans is partly lucky on its seeds. A plan that fails there is not returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.tuner.space import Space
from auras_ros.evaluate.tuner.trials import Candidate, Trials
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
    """candidates: all plans that were timed. chosen: None if none is good enough. confirmed: the chosen plan on new
    seeds; unconfirmed: why it is not good enough there, or that this was interrupted. partial: interrupted."""

    candidates: Sequence[Candidate]
    chosen: Candidate | None
    confirmed: Candidate | None
    partial: bool
    unconfirmed: str = ""
    seq: Candidate | None = None  # the baseline, as far as it was played

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
    """`run` explores and chooses. seed: of the first episode."""

    def __init__(self, trials: Trials, fresh: Trials, space: Space, effort: Effort, seed: int) -> None:
        """fresh: trials with a store of their own, for the confirmation."""
        self.trials, self._fresh, self.space, self.effort, self._seed = trials, fresh, space, effort, seed
        self._seen: dict[str, Plan] = {}

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
            partial, chosen = True, self.choose()
            if chosen is not None and self.effort.confirm:
                unconfirmed = INTERRUPTED
        return SearchResult(self.candidates(), chosen, confirmed, partial, unconfirmed, self.trials.seq())

    @property
    def lost(self) -> list[tuple[str, int, str]]:
        """The episodes that have lost their world: plan, seed, and why."""
        return [*self.trials.lost, *self._fresh.lost]

    def time(self, plans: Sequence[Plan]) -> list[Plan]:
        """Time the plans. Returns those that are worth playing."""
        self._seen |= {str(plan): plan for plan in plans}
        self.trials.time(plans)
        return [plan for plan in plans if not self.trials.candidate(plan).refused]

    def play(self, plan: Plan, episodes: int) -> Candidate:
        """Play the plan on the first `episodes` seeds. Returns its candidate."""
        seeds = range(self._seed, self._seed + episodes)
        self.trials.play(plan, seeds)
        return self.trials.candidate(plan, seeds)

    def candidates(self) -> list[Candidate]:
        """A candidate for every plan that was timed, the best first."""
        timed = [plan for name, plan in self._seen.items() if self.trials.is_timed(name)]
        seeds = range(self._seed, self._seed + self.effort.episodes)
        return sorted((self._finished(self.trials.candidate(plan, seeds)) for plan in timed), key=merit, reverse=True)

    def _finished(self, one: Candidate) -> Candidate:
        """Marks plans that successive halving dropped."""
        if one.refused or one.tried >= self.effort.episodes:
            return one
        return replace(one, refused="not played" if not one.tried else f"dropped after {one.episodes} episodes")

    def choose(self) -> Candidate | None:
        """The best of the plans that were played to the end and meet the requirements."""
        played = (one for one in self.candidates() if not one.refused and one.success is not None)
        return next((one for one in played if not self._wanting(one)), None)

    def _wanting(self, one: Candidate) -> str:
        return self.trials.settings.requirements.after_playing(one.success or 0.0, one.above_seq or 0.0)

    def _confirm(self, chosen: Candidate) -> Candidate:
        first = self._seed + FRESH
        self._fresh.time_as(self.trials, chosen.plan)
        seeds = range(first, first + self.effort.confirm)
        self._fresh.play(chosen.plan, seeds)
        return self._fresh.candidate(chosen.plan, seeds)


def halving(search: Search) -> None:
    """Explore the grid, then the skew of its best plans."""
    policy = search.trials.checkpoint.policy(search.space.base.generation)
    left = search.time(search.space.grid(policy))
    for episodes in search.effort.rounds():
        played = sorted((search.play(plan, episodes) for plan in left), key=merit, reverse=True)
        last = episodes == search.effort.episodes
        left = [one.plan for one in (played if last else played[: max(2, -(-len(played) // 2))])]
    for plan in left[:1]:
        for skewed in search.time(list(search.space.skewed(policy, plan))):
            search.play(skewed, search.effort.episodes)


def merit(one: Candidate) -> tuple[bool, int, float, float]:
    """Sort key; better plans sort later: played at all, on more seeds, with more success, faster. All plans use the
    same seeds in the same order, so only dropped or interrupted plans have fewer."""
    return (not one.refused, one.tried, -1.0 if one.success is None else one.success, one.rate_hz)


def pareto(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The Pareto front of rate and success among plans that were played to the end, by rate."""
    played = [one for one in candidates if not one.refused and one.success is not None]

    def beaten(one: Candidate) -> bool:
        mine = (one.rate_hz, one.success or 0.0)
        theirs = [(other.rate_hz, other.success or 0.0) for other in played if other is not one]
        return any(rate >= mine[0] and share >= mine[1] and (rate, share) != mine for rate, share in theirs)

    return sorted((one for one in played if not beaten(one)), key=lambda one: one.rate_hz)
