"""Finds the name that was probably meant, for messages about one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ALIKE = 0.85  # from here on, two names are one that was misspelt


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known name that was probably meant; '' where none is like it. likeness: from 0 (any) to 1 (the same)."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=likeness)
    return found[0] if found else ""
