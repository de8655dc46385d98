"""Settings as a frozen dataclass: the fields of a node's parameters, with what `ros2 param describe` shows of them.

Values are checked where they enter, then never changed. `ros.settings` declares them on a node; this module knows no
ROS, so that checking a config loads none.
"""

from __future__ import annotations

from dataclasses import Field, field
from typing import Any


class ParameterError(ValueError):
    """An invalid parameter; the message names node, parameter and the allowed values."""


def parameter(default: Any, description: str, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field that is a node parameter. low, high: inclusive bounds for numbers."""
    return field(default=default, metadata={"description": description, "low": low, "high": high})


def checked(owner: str, each: Field[Any], given: Any) -> Any:
    """The value in the type of the field's default, within its bounds. Raises ParameterError, naming `owner`."""
    default, low, high = each.default, each.metadata["low"], each.metadata["high"]
    if isinstance(default, float) and type(given) is int:
        given = float(given)
    if isinstance(default, tuple) and isinstance(given, list):
        given = tuple(given)
    if type(given) is not type(default):
        expected = "list" if isinstance(default, tuple) else type(default).__name__
        raise ParameterError(f"{owner}: {each.name}: expected {expected}, got {given!r}")
    if low is not None and not low <= given <= high:
        raise ParameterError(f"{owner}: {each.name}: must be in [{low}, {high}], got {given!r}")
    return given
