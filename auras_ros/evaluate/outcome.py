"""The result of a mode on a clock: one record for each episode, and sums that add up over groups and parts.

All sums are integers, so that parts joined later give exactly the same result as one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass(frozen=True)
class EpisodeRecord:
    """The result of one seeded episode.

    steps: control steps to success or to the limit. frames: of the executor, until then. chunks: finished requests.
    holds: steps without an active chunk. refused: chunks that came too late for any of their actions. best: sub-goal ->
    the largest share of it that was reached. ended: why the world ended it without success; empty: it did not. lost:
    why the world was gone before the end; empty if it was not. last: the world's statistics of the last step.
    """

    seed: int
    success: bool
    steps: int
    frames: int = 0
    chunks: int = 0
    holds: int = 0
    refused: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    ended: str = ""
    lost: str = ""
    last: Mapping[str, float] = field(default_factory=dict)


@dataclass
class ModeResult:
    """Episodes of one mode on one clock, in the order of their seeds.

    staleness: staleness[v] actions were executed v control steps after the observation behind them. age_ns: for each
    generation stage the sum, over all chunks, of the age of its context when the stage began; in lockstep it begins
    with its frame.
    """

    episodes: list[EpisodeRecord] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    age_ns: list[int] = field(default_factory=list)

    @property
    def seeds(self) -> list[int]:
        return [episode.seed for episode in self.episodes]

    @property
    def won(self) -> dict[int, bool]:
        """Success by seed, of the episodes that were played to their end."""
        return {episode.seed: episode.success for episode in self.episodes if not episode.lost}

    @property
    def lost(self) -> dict[int, str]:
        """Why, by seed, of the episodes whose world was gone before the end."""
        return {episode.seed: episode.lost for episode in self.episodes if episode.lost}

    @property
    def successes(self) -> int:
        return sum(episode.success for episode in self.episodes)

    @property
    def chunks(self) -> int:
        return sum(episode.chunks for episode in self.episodes)

    @property
    def steps(self) -> int:
        return sum(episode.steps for episode in self.episodes)

    def acted(self, age_steps: int) -> None:
        """Count an action that was executed `age_steps` control steps after the observation behind it."""
        self.staleness.extend([0] * (age_steps + 1 - len(self.staleness)))
        self.staleness[age_steps] += 1

    def aged(self, ages_ns: Iterable[int]) -> None:
        """Add the ages that the contexts of a chunk's stages had."""
        self.age_ns = _added(self.age_ns, ages_ns)

    @classmethod
    def join(cls, parts: Iterable[ModeResult]) -> ModeResult:
        """All episodes by seed, with all counts added. Raises ValueError, naming the seed, if one comes twice."""
        whole = cls()
        for part in parts:
            whole.episodes += part.episodes
            whole.staleness = _added(whole.staleness, part.staleness)
            whole.age_ns = _added(whole.age_ns, part.age_ns)
        whole.episodes.sort(key=lambda episode: episode.seed)
        for one, other in zip(whole.seeds, whole.seeds[1:], strict=False):
            if one == other:
                raise ValueError(f"seed {one} is in more than one part")
        return whole


def _added(some: Iterable[int], more: Iterable[int]) -> list[int]:
    return [a + b for a, b in zip_longest(some, more, fillvalue=0)]
