"""The channel contract: what every action dimension means, checked once where it enters.

A number without a name, a unit, a kind and limits must not reach a robot. Each checkpoint has its contract and
the actuator gets the same one; both build it here. This module never looks at an action value: `limits` checks
values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class ContractError(ValueError):
    """A contract, chunk or measured position that is invalid; the message names channel and field."""


class ChannelKind(str, Enum):
    """What a channel's number is relative to; it decides how chunks are aligned and joined.

    `absolute`: a set point. `delta_origin`: a set point relative to the state at the chunk's origin; it is
    commanded as a set point. `delta_previous`: an increment to the previous step; it is commanded as an
    increment. `velocity`: a rate. `gripper`: a set point that switches and is never blended.
    """

    ABSOLUTE = "absolute"
    DELTA_PREVIOUS = "delta_previous"
    DELTA_ORIGIN = "delta_origin"
    VELOCITY = "velocity"
    GRIPPER = "gripper"


SET_POINTS = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN, ChannelKind.GRIPPER)
# Set points for which the measured position matters; a gripper is opened or closed from any position.
NEEDS_PLACE = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN)


class HoldPolicy(str, Enum):
    """What is commanded when there is nothing valid: the last command, zero, or a fixed value."""

    LAST = "last"
    ZERO = "zero"
    VALUE = "value"


class Interpolation(str, Enum):
    """Between two policy steps: keep the step's action, or interpolate linearly to the next."""

    STEP = "step"
    LINEAR = "linear"


# Holding one of these with anything but zero would keep the robot moving.
_MOVING = (ChannelKind.VELOCITY, ChannelKind.DELTA_PREVIOUS)
_SWITCHING = (ChannelKind.GRIPPER, ChannelKind.DELTA_PREVIOUS)


@dataclass(frozen=True)
class Channel:
    """One action dimension: what bounds each kind, in `unit`, `unit`/s, `unit`/s². None means no bound.

    | kind | lower, upper | max_rate | max_acceleration |
    |---|---|---|---|
    | absolute, delta_origin, gripper | the set point | its change per second | the change of that, per second |
    | delta_previous | one increment | what the increments of a second may add up to | the change of that, per second |
    | velocity | the rate | its change per second | the same; the smaller of the two applies |

    A set point with a `max_acceleration` never approaches a limit faster than it can brake before it, and holding
    a moving one means: brake along an allowed path, then stand. `motion` enforces it.

    Raises ContractError, naming channel and field.
    """

    name: str
    unit: str
    kind: ChannelKind
    lower: float
    upper: float
    frame: str = ""
    max_rate: float | None = None
    hold: HoldPolicy = HoldPolicy.LAST
    hold_value: float | None = None
    interpolation: Interpolation = Interpolation.STEP
    max_acceleration: float | None = None

    def __post_init__(self) -> None:
        for field in ("name", "unit", "frame"):
            if not isinstance(getattr(self, field), str):
                raise self._error(field, f"expected text, got {type(getattr(self, field)).__name__}")
        if not self.name or "," in self.name:
            raise ContractError(f"channel {self.name!r}: name must be non-empty and without a comma")
        _enum(self, "kind", ChannelKind)
        _enum(self, "hold", HoldPolicy)
        _enum(self, "interpolation", Interpolation)
        for field in ("lower", "upper"):
            _finite(self, field)
        for field in ("max_rate", "max_acceleration", "hold_value"):
            if getattr(self, field) is not None:
                _finite(self, field)
        self._check_limits()
        self._check_hold()
        if self.interpolation is Interpolation.LINEAR and self.kind in _SWITCHING:
            raise self._error("interpolation", f"linear has no meaning for kind {self.kind.value}")

    def _check_limits(self) -> None:
        if self.lower >= self.upper:
            raise self._error("lower", f"{self.lower} is not below upper {self.upper}")
        for field, value in (("max_rate", self.max_rate), ("max_acceleration", self.max_acceleration)):
            if value is not None and value <= 0:
                raise self._error(field, f"{value} is not above zero (null means unbounded)")
        if self.kind in _MOVING and not self.lower <= 0.0 <= self.upper:
            raise self._error("lower", f"kind {self.kind.value} needs zero within its limits, so that it can stop")

    def _check_hold(self) -> None:
        if self.kind in _MOVING and self.hold is not HoldPolicy.ZERO:
            raise self._error("hold", f"{self.hold.value} would keep kind {self.kind.value} moving; use zero")
        if self.hold is HoldPolicy.ZERO and not self.lower <= 0.0 <= self.upper:
            raise self._error("hold", f"zero is outside the limits [{self.lower}, {self.upper}]")
        if self.hold is not HoldPolicy.VALUE:
            if self.hold_value is not None:
                raise self._error("hold_value", f"given, but hold is {self.hold.value}")
        elif self.hold_value is None:
            raise self._error("hold_value", "missing, and hold is value")
        elif not self.lower <= self.hold_value <= self.upper:
            raise self._error("hold_value", f"{self.hold_value} is outside [{self.lower}, {self.upper}]")

    def _error(self, field: str, text: str) -> ContractError:
        return ContractError(f"channel {self.name!r}: {field}: {text}")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Channel:
        """Build from a JSON object; unknown and missing keys are refused by name."""
        owner = f"channel {raw.get('name', '?')!r}" if isinstance(raw, Mapping) else "channel"
        check_keys(owner, raw, {f.name for f in fields(cls)}, _CHANNEL_REQUIRED)
        return cls(**raw)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads; without an acceleration limit the key is omitted, as before."""
        values = {key: value.value if isinstance(value, Enum) else value for key, value in vars(self).items()}
        return {key: value for key, value in values.items() if key != "max_acceleration" or value is not None}


_CHANNEL_REQUIRED = ("hold", "kind", "lower", "name", "unit", "upper")


@dataclass(frozen=True)
class Contract:
    """All channels in the order of an action vector, and the policy step `dt_ms`. Raises ContractError."""

    channels: tuple[Channel, ...]
    dt_ms: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        if not self.channels:
            raise ContractError("contract: channels: empty")
        for channel in self.channels:
            if not isinstance(channel, Channel):
                raise ContractError(f"contract: channels: {channel!r} is not a Channel")
        repeated = {name for name in self.names if self.names.count(name) > 1}
        if repeated:
            raise ContractError(f"channel {min(repeated)!r}: name: used more than once")
        if not _is_finite(self.dt_ms) or self.dt_ns < 1:
            raise ContractError(f"contract: dt_ms: {self.dt_ms!r} is not a time above zero")

    @property
    def names(self) -> tuple[str, ...]:
        """Channel names in action order."""
        return tuple(channel.name for channel in self.channels)

    @property
    def dt_ns(self) -> int:
        """The policy step in nanoseconds."""
        return round(self.dt_ms * 1e6)

    def is_kind(self, *kinds: ChannelKind) -> BoolArray:
        """Bool mask [channels] of the channels whose kind is one of `kinds`."""
        return np.array([channel.kind in kinds for channel in self.channels], dtype=np.bool_)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Contract:
        """Build from a JSON object {"dt_ms", "channels": [...]}; unknown and missing keys are refused."""
        check_keys("contract", raw, ("channels", "dt_ms"), ("channels", "dt_ms"))
        if not isinstance(raw["channels"], list | tuple):
            raise ContractError("contract: channels: expected a list")
        return cls(tuple(Channel.from_dict(channel) for channel in raw["channels"]), raw["dt_ms"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        return {"dt_ms": self.dt_ms, "channels": [channel.to_dict() for channel in self.channels]}


def _is_finite(value: object) -> bool:
    # The bound is far below the largest double, so that sums and ranges of limits are finite too.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def check_keys(owner: str, raw: object, known: Collection[str], required: Sequence[str]) -> None:
    """Raise ContractError unless `raw` is a JSON object with all `required` keys and none beyond `known`."""
    if not isinstance(raw, Mapping):
        raise ContractError(f"{owner}: expected an object, got {type(raw).__name__}")
    for key in raw:
        if key not in known:
            raise ContractError(f"{owner}: unknown key {key!r}; known: {', '.join(sorted(known))}")
    for key in required:
        if key not in raw:
            raise ContractError(f"{owner}: {key}: missing")


def _finite(channel: Channel, field: str) -> None:
    value = getattr(channel, field)
    if not _is_finite(value):
        raise ContractError(f"channel {channel.name!r}: {field}: {value!r} is not a finite number")
    object.__setattr__(channel, field, float(value))


def _enum(channel: Channel, field: str, kind: type[Enum]) -> None:
    value = getattr(channel, field)
    try:
        object.__setattr__(channel, field, kind(value))
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise ContractError(f"channel {channel.name!r}: {field}: {value!r} is not one of {known}") from None
