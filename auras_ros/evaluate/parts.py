"""An evaluation as JSON and back, so that a long one can be played in parts and joined.

`rows` and `summary` are for readers; parts are joined from what is beside them: settings, durations and all episodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from auras_ros.evaluate.comparison import rows, summary
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.settings import EvaluationSettings, SettingsError
from auras_ros.measure.durations import FrameDuration
from auras_ros.report.result import Report
from auras_ros.text_file import MEBIBYTE, read_text_file

MOST_BYTES = 64 * MEBIBYTE  # a thousand episodes of all modes on both clocks have less than one
# What a file of nonsense makes the code raise that reads it.
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class EvaluationPart:
    """Some seeds of an evaluation, in every mode on every clock. partial: it was interrupted, or seeds are missing, or
    episodes have lost their world."""

    settings: EvaluationSettings
    outcomes: Mapping[tuple[str, str], ModeResult]
    durations: Mapping[str, FrameDuration] = field(default_factory=dict)
    partial: bool = False

    @property
    def seeds(self) -> list[int]:
        return next(iter(self.outcomes.values())).seeds

    def report(self) -> Report:
        """The report: rows, summary, and what `from_dict` reads."""
        made = rows(self.settings, self.outcomes)
        more: dict[str, Any] = {"partial": True} if self.partial else {}
        more |= {
            "settings": self.settings.to_dict(),
            "durations": {key: asdict(duration) for key, duration in self.durations.items()},
            "seeds": _words(self.seeds),
            "episodes": {f"{clock}/{name}": packed(outcome) for (clock, name), outcome in self.outcomes.items()},
        }
        return Report("eval", made, summary(made), more)

    @classmethod
    def load(cls, path: Path) -> EvaluationPart:
        """Raises OSError, and SettingsError naming the file."""
        try:
            return cls.from_dict(json.loads(read_text_file(path, MOST_BYTES)))
        except UNREADABLE as error:
            raise SettingsError(f"{path}: not a report of `auras eval`: {error}") from error

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> EvaluationPart:
        settings = EvaluationSettings.from_dict(raw["settings"])
        settings.charging(settings.durations_s)  # raises if one is missing
        seeds = _numbers(raw["seeds"])
        expected = {(clock, one.name) for clock in settings.clocks for one in settings.contenders()}
        outcomes = {}
        for key, columns in raw["episodes"].items():
            clock, _, name = key.partition("/")
            outcomes[clock, name] = unpacked(seeds, columns)
        if outcomes.keys() != expected:
            raise SettingsError(f"episodes: expected {sorted(expected)}, got {sorted(outcomes)}")
        durations = {key: FrameDuration(**duration) for key, duration in raw["durations"].items()}
        return cls(settings, outcomes, durations, raw.get("partial", False))


def merge(parts: Sequence[EvaluationPart]) -> EvaluationPart:
    """One evaluation of all their seeds. Raises SettingsError if settings differ, ValueError for a repeated seed."""
    first = parts[0]
    for part in parts[1:]:
        first.settings.require_same(part.settings)
    outcomes = {key: ModeResult.join([part.outcomes[key] for part in parts]) for key in first.outcomes}
    seeds = next(iter(outcomes.values())).seeds
    partial = len(seeds) <= seeds[-1] - seeds[0] or any(outcome.lost for outcome in outcomes.values())
    return EvaluationPart(first.settings, outcomes, first.durations, partial)


def packed(outcome: ModeResult) -> dict[str, Any]:
    """Columns as text, in the order of the seeds: one line of JSON each, where a list would take a line per number. And
    why worlds have ended episodes or were lost, by seed."""
    episodes = outcome.episodes
    goals = dict.fromkeys(goal for episode in episodes for goal in episode.best)
    statistics = dict.fromkeys(name for episode in episodes for name in episode.last)
    reasons = {why: {str(each.seed): getattr(each, why) for each in episodes if getattr(each, why)} for why in REASONS}
    return {
        "success": "".join("01"[episode.success] for episode in episodes),
        "steps": _words(episode.steps for episode in episodes),
        **{f"{BEST}{goal}": " ".join(f"{each.best.get(goal, 0.0):.4f}" for each in episodes) for goal in goals},
        **{f"{LAST}{name}": _words(each.last.get(name, math.nan) for each in episodes) for name in statistics},
        **{name: _words(getattr(episode, name) for episode in episodes) for name in _COUNTS},
        "staleness_steps": _words(outcome.staleness),
        "context_age_ns": _words(outcome.age_ns),
        **{why: told for why, told in reasons.items() if told},
    }


_COUNTS = ("frames", "chunks", "holds", "refused")
BEST, LAST = "best_", "last_"  # and the name of a sub-goal, of a statistic; nan: the episode has none
REASONS = ("ended", "lost")


def unpacked(seeds: Sequence[int], raw: Mapping[str, Any]) -> ModeResult:
    """The columns of `packed`, in the order of EpisodeRecord's fields."""
    won, counts = (bit == "1" for bit in raw["success"]), [_numbers(raw[name]) for name in _COUNTS]
    best, last = (_named(prefix, raw) or [{}] * len(seeds) for prefix in (BEST, LAST))
    reasons = [[raw.get(why, {}).get(str(seed), "") for seed in seeds] for why in REASONS]
    columns = zip(seeds, won, _numbers(raw["steps"]), *counts, best, *reasons, last, strict=True)
    episodes = [EpisodeRecord(*column) for column in columns]
    return ModeResult(episodes, _numbers(raw["staleness_steps"]), _numbers(raw["context_age_ns"]))


def _named(prefix: str, raw: Mapping[str, Any]) -> list[dict[str, float]]:
    """The numbers of each episode in the columns with this prefix, by the rest of their names."""
    columns = {name.removeprefix(prefix): map(float, raw[name].split()) for name in raw if name.startswith(prefix)}
    rows = [zip(columns, numbers, strict=True) for numbers in zip(*columns.values(), strict=True)]
    return [{name: number for name, number in row if not math.isnan(number)} for row in rows]


def _words(numbers: Any) -> str:
    return " ".join(str(number) for number in numbers)


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split()]
