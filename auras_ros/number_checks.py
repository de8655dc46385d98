"""Whether a value from a file or a message is a number that can be computed with, and how an error shows it."""

from __future__ import annotations

MAX_NUMBER = 1e300  # far below the largest double: differences and ratios stay finite too


def is_int(value: object) -> bool:
    """An int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """A finite int or float that is not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def shown(value: object) -> str:
    """A short text of a file's value, for errors. Python does not print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list | tuple) and len(value) <= 8 and not any(isinstance(e, list | tuple) for e in value):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value) if isinstance(value, str | bytes | int | float | None) else f"<{type(value).__name__}>"
    return text if len(text) <= 200 else f"{text[:200]}..."
