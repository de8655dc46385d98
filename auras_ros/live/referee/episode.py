"""What the referee is told and writes down: when to stop, the world's status, an episode's result. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Rules:
    """When to stop. seconds: begin no episode later than this after the first was armed; None: no limit.

    grace_s: how long a running episode may go on after that. patience_s: how long starting an episode may take.
    move_s: how long an armed world may stand still. Raises ValueError naming the field.
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
class WorldStatus:
    """One control step of the world, as its bridge's `~/status` tells it. sub_goals: shares reached, 0 to 1. lost: why
    the world before this one was lost; empty if it was not."""

    episode: int
    seed: int
    step: int
    sub_goals: Mapping[str, float]
    success: bool
    done: bool
    waiting: bool
    stamp_ns: int
    mono_ns: int
    action: tuple[float, ...] | None
    lost: str = ""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> WorldStatus:
        """Raises ValueError naming the field that is missing or of another type."""
        values: dict[str, Any] = {}
        for name, kind in _TYPES.items():
            given: Any = raw.get(name)
            if type(given) is not kind:
                raise ValueError(f"status: {name}: expected {kind.__name__}, got {given!r}")
            values[name] = given
        goals, action = raw.get("sub_goals"), raw.get("action")
        if not isinstance(goals, dict):
            raise ValueError(f"status: sub_goals: expected shares by name, got {goals!r}")
        values["sub_goals"] = dict(zip(goals, _numbers("sub_goals", [*goals.values()]), strict=True))
        values["lost"] = str(raw.get("lost", ""))
        values["action"] = None if action is None else tuple(_numbers("action", action))
        return cls(**values)


def _numbers(name: str, given: Any) -> list[float]:
    if not isinstance(given, list) or any(type(each) not in (int, float) for each in given):
        raise ValueError(f"status: {name}: expected numbers, got {given!r}")
    return [float(each) for each in given]


_TYPES: dict[str, Any] = {
    name: kind for name, kind in get_type_hints(WorldStatus).items() if name not in ("sub_goals", "action", "lost")
}


@dataclass
class LiveEpisode:
    """One episode's result. best, last: how far each sub-goal was reached, 0 to 1. notes: what went wrong."""

    seed: int
    success: bool = False
    steps: int = 0
    best: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """A flat object for the report."""
        goals = {f"{when}_{name}": share for when in ("best", "last") for name, share in getattr(self, when).items()}
        told = {"seed": self.seed, "success": self.success, "steps": self.steps}
        return {**told, **goals, "notes": "; ".join(self.notes)}
