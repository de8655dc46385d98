"""What a checkpoint says about its inputs: cameras (`camera`), joints and their scale, history.

Frozen and checked once, at construction; unknown keys are refused, because a misspelt crop would silently do nothing.
This module never touches a pixel: `preprocess` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .camera import CameraSpec
from .checks import (
    SpecError,
    check_choice,
    check_name,
    check_positive,
    is_number,
    known_keys,
    numbers,
    object_of,
)

NORMALIZATIONS = ("none", "min_max", "mean_std")


@dataclass(frozen=True)
class StateSpec:
    """Joints in the policy's order and their normalisation, by the training data's statistics [joints].

    none: x. min_max: 2 (x - min) / (max - min) - 1, with `first` = min and `second` = max. mean_std:
    (x - mean) / std, with `first` = mean and `second` = std. In JSON:
    {"names": [...], "normalization": {"kind": "min_max", "min": [...], "max": [...]}}.
    """

    names: tuple[str, ...]
    kind: str = "none"
    first: tuple[float, ...] = ()
    second: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        for name in self.names:
            check_name("state", name)
        if not self.names or len(set(self.names)) != len(self.names):
            raise SpecError(f"state: names: empty or used more than once: {list(self.names)}")
        check_choice("state", self, "kind", NORMALIZATIONS)
        if self.kind == "none":
            return
        first, second = _STATE_KEYS[self.kind]
        object.__setattr__(self, "first", numbers("state", first, self.first, len(self.names)))
        object.__setattr__(self, "second", numbers("state", second, self.second, len(self.names)))
        for name, a, b in zip(self.names, self.first, self.second, strict=True):
            if (self.kind == "min_max" and b <= a) or (self.kind == "mean_std" and b <= 0):
                raise SpecError(f"state: joint {name!r}: {second}: {b!r} leaves no range ({first} {a!r})")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> StateSpec:
        """Build from a JSON object."""
        known_keys("state", raw, {"names", "normalization"}, {"names"})
        rule = raw.get("normalization", {"kind": "none"})
        kind = rule.get("kind") if isinstance(rule, Mapping) else rule
        if kind not in NORMALIZATIONS:
            raise SpecError(f"state: normalization: kind: {kind!r} is not one of {', '.join(NORMALIZATIONS)}")
        keys = _STATE_KEYS[str(kind)]
        known_keys("state: normalization", rule, {"kind", *keys}, {"kind", *keys})
        if not isinstance(raw["names"], list | tuple):
            raise SpecError(f"state: names: expected a list, got {raw['names']!r}")
        return cls(tuple(raw["names"]), str(kind), *(rule[key] for key in keys))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        values = dict(zip(_STATE_KEYS[self.kind], (list(self.first), list(self.second)), strict=False))
        return {"names": list(self.names), "normalization": {"kind": self.kind, **values}}


_STATE_KEYS: dict[str, tuple[str, ...]] = {
    "none": (),
    "min_max": ("min", "max"),
    "mean_std": ("mean", "std"),
}


@dataclass(frozen=True)
class ObservationSpec:
    """All inputs: cameras in order (with the same result size and number of channels), state or None, `history`
    instants `dt_ms` apart."""

    cameras: tuple[CameraSpec, ...]
    state: StateSpec | None
    history: int
    dt_ms: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "cameras", tuple(self.cameras))
        names = [camera.name for camera in self.cameras]
        if len(set(names)) != len(names):
            raise SpecError(f"observation: cameras: a name is used more than once: {names}")
        if not self.cameras and self.state is None:
            raise SpecError("observation: cameras: none, and no state")
        sizes = {camera.name: camera.output_size for camera in self.cameras}
        if len(set(sizes.values())) > 1:
            raise SpecError(f"observation: cameras: results of different sizes: {sizes}")
        if len({camera.channels for camera in self.cameras}) > 1:
            stacked = {camera.name: camera.channels for camera in self.cameras}
            raise SpecError(f"observation: cameras: stacked: results of different channels: {stacked}")
        check_positive("observation", self, "history")
        if not is_number(self.dt_ms) or round(self.dt_ms * 1e6) < 1:
            raise SpecError(f"observation: dt_ms: {self.dt_ms!r} is not a time above zero")

    @property
    def dt_ns(self) -> int:
        """The policy step in nanoseconds."""
        return round(self.dt_ms * 1e6)

    @property
    def image_size(self) -> tuple[int, int]:
        """(h, w) of every camera's result; (0, 0) without cameras."""
        return self.cameras[0].output_size if self.cameras else (0, 0)

    @property
    def channels(self) -> int:
        """Channels of every camera's result; 3 without cameras."""
        return self.cameras[0].channels if self.cameras else 3

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ObservationSpec:
        """Build from the JSON object {"cameras": [...], "state": {...}|null, "history", "dt_ms"}."""
        values = object_of("observation", cls, raw)
        cameras = values["cameras"]
        if not isinstance(cameras, list | tuple):
            raise SpecError("observation: cameras: expected a list")
        state = values["state"]
        return cls(
            tuple(CameraSpec.from_dict(camera) for camera in cameras),
            None if state is None else StateSpec.from_dict(state),
            values["history"],
            values["dt_ms"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        return {
            "cameras": [camera.to_dict() for camera in self.cameras],
            "state": None if self.state is None else self.state.to_dict(),
            "history": self.history,
            "dt_ms": self.dt_ms,
        }
