"""What the referee is told and writes down: when to stop, the table's status, an episode's result. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Rules:
    """When to stop. seconds: begin no episode later than this after the first was armed; None: no limit.

    grace_s: how long a running episode may go on after that. patience_s: how long starting an episode may take.
    move_s: how long an armed table may stand still. Raises ValueError naming the field.
    """

    seconds: float | None = 60.0
    episodes: int | None = None
    grace_s: float = 15.0
    patience_s: float = 60.0
    move_s: float = 20.0

    def __post_init__(self) -> None:
        if self.seconds is None and self.episodes is None:
            raise ValueError("rules: seconds or episodes must be given, or the demo never ends")
        if self.seconds is not None and not 0 < self.seconds <= 1e6:
            raise ValueError(f"seconds: must be in (0, 1000000], got {self.seconds}")
        if self.episodes is not None and self.episodes < 1:
            raise ValueError(f"episodes: must be at least 1, got {self.episodes}")


@dataclass(frozen=True)
class TableStatus:
    """One control step of the table, as `pusht/status` tells it."""

    episode: int
    seed: int
    step: int
    coverage: float
    success: bool
    done: bool
    waiting: bool
    stamp_ns: int
    mono_ns: int
    action: tuple[float, float] | None

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> TableStatus:
        """Raises ValueError naming the field that is missing or of another type."""
        values: dict[str, Any] = {}
        for name, kind in _TYPES.items():
            given: Any = raw.get(name)
            if type(given) is not kind and not (kind is float and type(given) is int):
                raise ValueError(f"pusht/status: {name}: expected {kind.__name__}, got {given!r}")
            values[name] = float(given) if kind is float else given
        action = raw.get("action")
        try:
            values["action"] = None if action is None else (float(action[0]), float(action[1]))
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"pusht/status: action: expected [x, y] or null, got {action!r}") from error
        return cls(**values)


_TYPES: dict[str, Any] = {name: kind for name, kind in get_type_hints(TableStatus).items() if name != "action"}


@dataclass
class LiveEpisode:
    """One episode's result. Coverages are shares of the goal, 0 to 1; `notes` says what went wrong on the way."""

    seed: int
    success: bool = False
    steps: int = 0
    best_coverage: float = 0.0
    last_coverage: float = 0.0
    notes: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """A flat object for the report."""
        return {**vars(self), "notes": "; ".join(self.notes)}
