"""How long playing still takes: what is yet to be done, each part as long as the like of it took so far.

What a search will prune is not known, so the estimate assumes that nothing is: it is an upper one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.report.result import remaining

Generation = tuple[str, str]  # a checkpoint, as the user calls it, and one of its generation plans
Kind = tuple[str, tuple[str, str]]  # TIME or PLAY, and of what: of a generation, or of a mode on a clock
TIME, PLAY = "time", "play"  # a plan, an episode
ENOUGH = 0.25  # of what is being done: its first moments say nothing


class Pace:
    """ahead: plans to time and episodes to play, at most, by their kind. now_s: a clock, s."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self.ahead: defaultdict[Kind, float] = defaultdict(float)
        self.steps: list[int] = []  # of the episodes that are over
        self._took: defaultdict[Kind, list[float]] = defaultdict(lambda: [0.0, 0.0])  # units, seconds

    def took(self, kind: Kind, units: float, seconds: float) -> None:
        """So many plans or episodes are done."""
        self.ahead[kind] -= units
        self._took[kind][0] += units
        self._took[kind][1] += seconds

    def left(self, kind: Kind, units: float = 0.0, seconds: float = 0.0, of: float = 1.0) -> str:
        """In words, empty while there is nothing to go by. kind, units, seconds: what is being done and how much of it
        is done. of: how much of it is being done together."""
        each_s = {one: took[1] / took[0] for one, took in self._took.items()}
        if units >= ENOUGH * of:
            before, spent_s = self._took.get(kind, (0.0, 0.0))
            each_s[kind] = (spent_s + seconds) / (before + units)
        left_s = 0.0
        for one, count in self.ahead.items():
            alike = [its_s for (what, _), its_s in each_s.items() if what == one[0]]
            if count > 0 and not alike:
                return ""
            if count > 0:
                left_s += (count - (units if one == kind else 0.0)) * each_s.get(one, fmean(alike))
        return f", {remaining(left_s)}"


class GroupPace:
    """The pace of a group of episodes that are played together. It begins with their first step: worlds are made
    before."""

    def __init__(self, pace: Pace, kind: Kind) -> None:
        self._pace, self._kind = pace, kind
        self._began_s: float | None = None

    def left(self, runners: EpisodeRunners) -> str:
        """In words, as `Pace.left`. To be called before the first step and after each."""
        now_s = self._pace.now_s()
        if self._began_s is None:
            self._began_s = now_s
        living = [runner.episode.steps for runner in runners.living().values()]
        known = [*self._pace.steps, *_steps(runners.finished)]
        lengths = {steps: expected_steps(steps, known, runners.task.max_steps) for steps in set(living)}
        over, of = len(runners.finished), len(runners.finished) + len(living)
        done = over + sum(steps / lengths[steps] for steps in living)
        return self._pace.left(self._kind, done, now_s - self._began_s, of)

    def end(self, outcome: ModeResult) -> None:
        """The group is over."""
        if self._began_s is None:
            self._pace.ahead[self._kind] -= len(outcome.episodes)
            return
        self._pace.took(self._kind, len(outcome.episodes), self._pace.now_s() - self._began_s)
        self._pace.steps += _steps(outcome.episodes)


def expected_steps(steps: int, known: Sequence[int], max_steps: int) -> float:
    """Control steps of an episode that has had `steps`: the mean of the known ones that were longer. If none was, twice
    what it has had; if none is known, the most."""
    longer = [each for each in known if each > steps]
    return fmean(longer) if longer else min(2 * steps, max_steps) if known else max_steps


def _steps(episodes: Iterable[EpisodeRecord]) -> list[int]:
    """Of those that were played to their end."""
    return [episode.steps for episode in episodes if not episode.lost]
