"""The measurements of plans so far, on disk after every step: an interrupted search continues where it was.

Frames are timed beside seq, so each plan's duration is stored with that of seq in the same run; episodes are stored by
seed. A file has a record for each checkpoint and generation plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.seams import Seams
from auras_ros.evaluate.work import keep, read_kept, require_key
from auras_ros.measure.durations import FrameDuration

FORMAT, OF_ONE_PLAN = "auras-tune/2", "auras-tune/1"  # the latter had one record
OWN = ("checkpoint", "seq")  # what the records of one file do not have in common


@dataclass(frozen=True)
class Timed:
    """Frames of a plan, and of seq in the same interleaved rounds."""

    plan: FrameDuration
    seq: FrameDuration

    @property
    def speedup(self) -> float:
        """The rate of chunks divided by seq's."""
        return self.seq.seconds / self.plan.seconds


@dataclass
class Played:
    """Episodes of one plan by seed: success, and sums over all of them. charged_s: the frame time that they were
    charged. seams: statistics of their seams; empty if these were not counted. lost: why, of those that have lost their
    world; the file does not have them, so that they are played again when the search is continued."""

    charged_s: float
    success: dict[int, bool] = field(default_factory=dict)
    steps: int = 0
    holds: int = 0
    acted: int = 0
    staleness_steps: int = 0
    seams: Seams = field(default_factory=Seams)
    lost: dict[int, str] = field(default_factory=dict, init=False)

    def add(self, outcome: ModeResult) -> None:
        self.success |= outcome.won
        self.lost |= outcome.lost
        self.steps += outcome.steps
        self.holds += sum(episode.holds for episode in outcome.episodes)
        self.acted += sum(outcome.staleness)
        self.staleness_steps += sum(value * count for value, count in enumerate(outcome.staleness))

    def figures(self, dt_ms: float) -> dict[str, Any]:
        """The fields of a row. dt_ms: of a control step; staleness_ms: the mean of all actions, None without any."""
        stale_ms = self.staleness_steps / self.acted * dt_ms if self.acted else None
        return {"hold_share": self.holds / self.steps if self.steps else None, "staleness_ms": stale_ms}


@dataclass
class EpisodeStore:
    """The record of one checkpoint and generation plan. key: the settings of all measurements here. path: None keeps it
    in memory only. file: all records of that file, this one among them."""

    key: Mapping[str, Any]
    path: Path | None = None
    timed: dict[str, Timed] = field(default_factory=dict)
    played: dict[str, Played] = field(default_factory=dict)
    file: list[EpisodeStore] = field(default_factory=list, repr=False, compare=False)

    def missing(self, plan: str, seeds: Sequence[int]) -> list[int]:
        """The seeds on which this plan was not played yet, nor lost its world since."""
        played = self.played.get(plan, Played(0.0))
        return [seed for seed in seeds if seed not in played.success and seed not in played.lost]

    def save(self) -> None:
        """Write the file atomically."""
        records = [each._packed() for each in self.file or [self]]
        keep(self.path, FORMAT, _shared(self.key), {"records": records})

    def _packed(self) -> dict[str, Any]:
        own = {name: value for name, value in self.key.items() if name in OWN}
        timed = {plan: asdict(timed) for plan, timed in self.timed.items()}
        return {**own, "timed": timed, "played": {plan: _packed(played) for plan, played in self.played.items()}}

    @classmethod
    def open(cls, key: Mapping[str, Any], path: Path | None) -> EpisodeStore:
        """A new one, or the contents of the file. Raises OSError, and SettingsError if the file has other
        settings."""
        for each in _records(path):
            require_key(path or Path(), key, each.key)
        return cls.open_all([key], path)[0]

    @classmethod
    def open_all(cls, keys: Sequence[Mapping[str, Any]], path: Path | None) -> list[EpisodeStore]:
        """One for each key, in one file. Records of other checkpoints and generation plans stay in it; any other
        difference is refused. Raises OSError and SettingsError."""
        known = _records(path)
        for each in known:
            require_key(path or Path(), _shared(keys[0]), _shared(each.key))
        found = [next((each for each in known if each.key == key), cls(key)) for key in keys]
        file = [*found, *(each for each in known if each.key not in keys)]
        for each in file:
            each.path, each.file = path, file
        return found


def _shared(key: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in key.items() if name not in OWN}


def _records(path: Path | None) -> list[EpisodeStore]:
    if path is None or not path.exists():
        return []
    return read_kept(path, (FORMAT, OF_ONE_PLAN), "a record of `auras tune`", _contents)


def _contents(raw: Mapping[str, Any]) -> list[EpisodeStore]:
    if raw["format"] == OF_ONE_PLAN:
        return [_unpacked_store(raw["key"], raw)]
    own = [{name: each[name] for name in OWN if name in each} for each in raw["records"]]
    return [_unpacked_store({**raw["key"], **its}, each) for its, each in zip(own, raw["records"], strict=True)]


def _unpacked_store(key: Mapping[str, Any], raw: Mapping[str, Any]) -> EpisodeStore:
    timed = {
        name: Timed(*(FrameDuration(**each[key]) for key in ("plan", "seq"))) for name, each in raw["timed"].items()
    }
    return EpisodeStore(dict(key), None, timed, {name: _unpacked(each) for name, each in raw["played"].items()})


def _packed(played: Played) -> dict[str, Any]:
    seeds = sorted(played.success)
    bits = "".join("01"[played.success[seed]] for seed in seeds)
    rest = {name: value for name, value in vars(played).items() if name not in ("success", "seams", "lost")}
    seams = {"seams": played.seams.to_dict()} if played.seams.count else {}
    return {"seeds": " ".join(map(str, seeds)), "success": bits, **rest, **seams}


def _unpacked(raw: Mapping[str, Any]) -> Played:
    seeds = [int(word) for word in raw["seeds"].split()]
    success = {seed: bit == "1" for seed, bit in zip(seeds, raw["success"], strict=True)}
    rest = {name: value for name, value in raw.items() if name not in ("seeds", "success", "seams")}
    seams = Seams.from_dict(raw["seams"]) if "seams" in raw else Seams()
    return Played(**rest, success=success, seams=seams)
