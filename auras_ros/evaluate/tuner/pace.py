"""How long a search still takes: what it has yet to do, each part as long as the like of it took so far.

What will be pruned is not known, so the estimate assumes that nothing is: it is an upper one.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from auras_ros.report.result import remaining

Generation = tuple[str, str]  # a checkpoint, as the user calls it, and one of its generation plans
Kind = tuple[str, Generation]  # TIME or PLAY, and of what
TIME, PLAY = "time", "play"  # a plan, an episode
ENOUGH = 0.25  # of what is being done: its first moments, in which worlds are made, say nothing


class Pace:
    """ahead: plans to time and episodes to play, at most, by their kind."""

    def __init__(self) -> None:
        self.ahead: defaultdict[Kind, float] = defaultdict(float)
        self._took: defaultdict[Kind, list[float]] = defaultdict(lambda: [0.0, 0.0])  # units, seconds

    def took(self, kind: Kind, units: float, seconds: float) -> None:
        """So many plans or episodes are done."""
        self.ahead[kind] -= units
        self._took[kind][0] += units
        self._took[kind][1] += seconds

    def left(self, kind: Kind, units: float = 0.0, seconds: float = 0.0) -> str:
        """In words, empty while there is nothing to go by. kind, units, seconds: what is being done and how much of it
        is done."""
        each_s = {one: took[1] / took[0] for one, took in self._took.items()}
        if units >= ENOUGH:
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
