"""Finds the name that was probably meant, for messages about one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALIKE = 0.85  # from here on, two names are one that was misspelt


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known name that was probably meant; '' where none is like it. likeness: from 0 (any) to 1 (the same)."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=likeness)
    return found[0] if found else ""


def hint(name: str, known: Iterable[str], *, show_all: bool = False) -> str:
    """`; did you mean X?` for a name that is not known; where none is like it, all of them if `show_all`."""
    names = list(known)
    meant = nearest(name, names)
    if meant:
        return f"; did you mean {meant}?"
    return f"; known: {', '.join(names)}" if show_all else ""
