"""What an evaluation has played so far, on disk after every run of a mode: an interruption costs that one run at most.

An interrupted run is discarded: its episodes that are already over are the short ones, and counting only these would be
biased. A file with other settings is refused by name, as the tuner's record is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.parts import packed, unpacked
from auras_ros.evaluate.settings import EvaluationSettings, SettingsError
from auras_ros.evaluate.tuner.record import require_key
from auras_ros.measure.durations import FrameDuration
from auras_ros.report.result import write_whole

FORMAT = "auras-eval-work/1"
Run = tuple[str, str]  # clock, name of the contender


@dataclass
class Work:
    """path: None keeps it in memory only. durations: as measured, once for the whole evaluation; None: not yet. played:
    by run, then by group of seeds."""

    path: Path | None = None
    durations: Mapping[str, FrameDuration] | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    played: dict[Run, dict[tuple[int, ...], ModeResult]] = field(default_factory=dict)

    def find(self, run: Run, group: Sequence[int]) -> ModeResult | None:
        return self.played.get(run, {}).get(tuple(group))

    def add(self, run: Run, outcome: ModeResult) -> None:
        self.played.setdefault(run, {})[tuple(outcome.seeds)] = outcome
        self.save()

    def save(self) -> None:
        if self.path is None:
            return
        raw = {
            "format": FORMAT,
            "key": dict(self.key),
            "durations": None if self.durations is None else {k: asdict(each) for k, each in self.durations.items()},
            "played": [
                {"clock": clock, "name": name, "seeds": list(seeds), "episodes": packed(outcome)}
                for (clock, name), groups in self.played.items()
                for seeds, outcome in groups.items()
            ],
        }
        write_whole(self.path, json.dumps(raw, indent=1) + "\n")

    @classmethod
    def open(cls, settings: EvaluationSettings, path: Path | None) -> Work:
        """A new one, or the contents of the file. settings: without durations. Raises OSError, and SettingsError if the
        file is of another kind or has other settings."""
        key = {name: value for name, value in settings.to_dict().items() if name not in NOT_ITS_KEY}
        if path is None or not path.exists():
            return cls(path, key=key)
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["format"] != FORMAT:
                raise SettingsError(f"format is {raw['format']!r}")
            its, known = dict(raw["key"]), raw["durations"]
            durations = None if known is None else {name: FrameDuration(**each) for name, each in known.items()}
            made = cls(path, durations, key)
            for each in raw["played"]:
                seeds = [int(seed) for seed in each["seeds"]]
                outcome = unpacked(seeds, each["episodes"])
                made.played.setdefault((each["clock"], each["name"]), {})[tuple(seeds)] = outcome
        except (SettingsError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(f"{path}: not a work file of `auras eval`: {error}") from error
        if not durations or "charged" not in settings.clocks:  # nothing is timed in the file, or in this evaluation
            its["cores"] = key["cores"] = its["cores"] if durations else key["cores"]
        require_key(path, key, its)
        return made


NOT_ITS_KEY = {"modes", "clocks", "durations_s"}  # a continued evaluation may have more of them
