"""What a name stands for: one of ours, or an entry point of an installed package. It imports a package only when its
name is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from auras_ros.spelling import hint

T = TypeVar("T")


def registered(group: str) -> list[EntryPoint]:
    """What other packages have registered in this group of entry points, by name."""
    return sorted(entry_points(group=group))


def find(group: str, ours: Mapping[str, T], what: str, name: object) -> T:
    """Raises ValueError, naming `what` it is, for a name that is not known or whose package cannot be imported."""
    if isinstance(name, str) and name in ours:
        return ours[name]
    others = {each.name: each for each in registered(group)}
    if not isinstance(name, str) or name not in others:
        meant = hint(str(name), [*ours, *others], show_all=True)
        raise ValueError(f"{what} {name!r:.80} is not known{meant}")
    try:
        found: T = others[name].load()
    except Exception as error:  # another package's module: its import may raise anything
        text = f"{what} '{name}': entry point {others[name].value} cannot be loaded: {type(error).__name__}: {error}"
        raise ValueError(text) from error
    return found
