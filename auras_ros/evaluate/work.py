"""The --work files of evaluations, searches and figures: what was measured and played so far, on disk after every step.

A file with other settings is refused by name, never mixed in. An evaluation writes after every run of a mode, so an
interruption costs that one run at most: it is discarded, because its episodes that are already over are the short
ones, and counting only these would be biased.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.parts import MOST_BYTES, UNREADABLE, packed, unpacked
from auras_ros.evaluate.settings import EvaluationSettings, SettingsError
from auras_ros.measure.durations import FrameDuration
from auras_ros.report.result import write_whole
from auras_ros.text_file import read_text_file

FORMAT = "auras-eval-work/1"
Run = tuple[str, str]  # clock, name of the contender
Groups = dict[tuple[int, ...], ModeResult]  # by their seeds
KeptT = TypeVar("KeptT")


def keep(path: Path | None, form: str, key: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Write a file atomically. key: the settings of all its contents. path: None keeps them in memory only."""
    if path is not None:
        write_whole(path, json.dumps({"format": form, "key": dict(key), **contents}, indent=1) + "\n")


def read_kept(path: Path, forms: Sequence[str], what: str, unpack: Callable[[Mapping[str, Any]], KeptT]) -> KeptT:
    """What `unpack` makes of a kept file. Raises OSError, and SettingsError if it is not `what`."""
    try:
        raw = json.loads(read_text_file(path, MOST_BYTES))
        if raw["format"] not in forms:
            raise SettingsError(f"format is {raw['format']!r}")
        return unpack(raw)
    except UNREADABLE as error:
        raise SettingsError(f"{path}: not {what}: {error}") from error


def require_key(path: Path, mine: Mapping[str, Any], its: Mapping[str, Any]) -> None:
    """Raises SettingsError, naming the first difference: measurements with other settings are never mixed in. `cores`
    is compared last, because its default depends on the device."""
    for name in sorted(mine.keys() | its.keys(), key=lambda name: (name == "cores", name)):
        if mine.get(name) != its.get(name):
            what = f"{name} {its.get(name)}, not {mine.get(name)}"
            raise SettingsError(f"{path}: was made with {what}; use another --work file")


@dataclass
class Work:
    """path: None keeps it in memory only. durations: as measured, once for the whole evaluation; None: not yet. played:
    by run, then by group of seeds."""

    path: Path | None = None
    durations: Mapping[str, FrameDuration] | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    played: dict[Run, Groups] = field(default_factory=dict)

    def find(self, run: Run, group: Sequence[int]) -> ModeResult | None:
        return self.played.get(run, {}).get(tuple(group))

    def add(self, run: Run, outcome: ModeResult) -> None:
        self.played.setdefault(run, {})[tuple(outcome.seeds)] = outcome
        self.save()

    def save(self) -> None:
        durations = None if self.durations is None else {key: asdict(each) for key, each in self.durations.items()}
        played = [
            {"clock": clock, "name": name, "seeds": list(seeds), "episodes": packed(outcome)}
            for (clock, name), groups in self.played.items()
            for seeds, outcome in groups.items()
        ]
        keep(self.path, FORMAT, self.key, {"durations": durations, "played": played})

    @classmethod
    def open(cls, settings: EvaluationSettings, path: Path | None) -> Work:
        """A new one, or the contents of the file. settings: without durations. Raises OSError, and SettingsError if the
        file is of another kind or has other settings."""
        key = {name: value for name, value in settings.to_dict().items() if name not in NOT_ITS_KEY}
        if path is None or not path.exists():
            return cls(path, key=key)
        its, durations, played = read_kept(path, [FORMAT], "a work file of `auras eval`", _contents)
        if not durations or "charged" not in settings.clocks:  # nothing is timed in the file, or in this evaluation
            its["cores"] = key["cores"] = its["cores"] if durations else key["cores"]
        require_key(path, key, its)
        return cls(path, durations, key, played)


def _contents(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, FrameDuration] | None, dict[Run, Groups]]:
    known = raw["durations"]
    durations = None if known is None else {name: FrameDuration(**each) for name, each in known.items()}
    played: dict[Run, Groups] = {}
    for each in raw["played"]:
        seeds = [int(seed) for seed in each["seeds"]]
        played.setdefault((each["clock"], each["name"]), {})[tuple(seeds)] = unpacked(seeds, each["episodes"])
    return dict(raw["key"]), durations, played


NOT_ITS_KEY = {"modes", "clocks", "durations_s"}  # a continued evaluation may have more of them
