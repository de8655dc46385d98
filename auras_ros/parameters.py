"""Settings as a frozen dataclass: the fields of a node's parameters, with what `ros2 param describe` shows of them.

Values are checked where they enter, then never changed. `ros.settings` declares them on a node; this module knows no
ROS, so that checking a config loads none.
"""

from __future__ import annotations

from dataclasses import Field, field, fields
from typing import Any

from auras_ros.spelling import ALIKE, nearest


class ParameterError(ValueError):
    """An invalid parameter; the message names node, parameter and the allowed values."""


class UnloadableError(ParameterError):
    """What a parameter names cannot be loaded. The message says what was found there, so it is for the log of this
    machine only: other nodes must not learn from it which files exist."""


REMOTE_CONFIGURATION = "remote_configuration"
"""The parameter of a node, given at its start, that lets other nodes set what names files."""


def parameter(
    default: Any,
    description: str,
    low: float | None = None,
    high: float | None = None,
    *,
    names_files: bool = False,
) -> Any:
    """A dataclass field that is a node parameter. low, high: inclusive bounds for numbers. names_files: the value names
    a file or folder that the node reads or writes, such as a checkpoint. Whoever may set it decides what is loaded, so
    it is read-only for other nodes (`ros2 param set`), unless the node was started with `remote_configuration: true`.
    """
    metadata = {"description": description, "low": low, "high": high, "names_files": names_files}
    return field(default=default, metadata=metadata)


def remote_configuration() -> Any:
    """The field of the parameter `remote_configuration`, of a node that reads parameters after its start."""
    return parameter(
        False, "other nodes may set the parameters that name files too: checkpoint, folders, adapters; only at start"
    )


def checked(owner: str, each: Field[Any], given: Any) -> Any:
    """The value in the type of the field's default, within its bounds. Raises ParameterError, naming `owner`."""
    default, low, high = each.default, each.metadata["low"], each.metadata["high"]
    if isinstance(default, float) and type(given) is int:
        given = float(given)
    if isinstance(default, tuple) and isinstance(given, list):
        given = tuple(given)
    if type(given) is not type(default):
        expected = "list" if isinstance(default, tuple) else type(default).__name__
        raise ParameterError(f"{owner}: {each.name}: expected {expected}, got {given!r:.80}")
    if low is not None and not low <= given <= high:
        raise ParameterError(f"{owner}: {each.name}: must be in [{low}, {high}], got {given!r:.80}")
    return given


def core_numbers(owner: str, name: str, text: str) -> list[int] | None:
    """The cores that a parameter names, such as 2,3; None if it is empty. Raises ParameterError."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else None
    except ValueError:
        raise ParameterError(f"{owner}: {name}: expected core numbers such as 2,3, got {text!r}") from None


def unknown(settings: type[Any], name: str, likeness: float = ALIKE) -> str:
    """What a name should be that is similar to one of these parameters, or was one once; empty for any other name."""
    if instead := getattr(settings, "REMOVED", {}).get(name):
        return f"no parameter '{name}'; {instead}"
    if text := _nested(settings, name):
        return text
    meant = nearest(name, [each.name for each in fields(settings)], likeness)
    return f"no parameter '{name}'; did you mean {meant}?" if meant else ""


def _nested(settings: type[Any], name: str) -> str:
    """What to write where a list was written as a map; empty for any other name."""
    outer, dot, inner = name.partition(".")
    is_list = any(each.name == outer and isinstance(each.default, tuple) for each in fields(settings))
    return f"no parameter '{name}'; {outer} is a list: [{inner}:=...]" if dot and is_list else ""
