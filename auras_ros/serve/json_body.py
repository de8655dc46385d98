"""The JSON of a request's body, bounded before it is parsed: how many values it has, and how long its numbers are.

Python's parser holds the interpreter, and with it `/health`, until it is done: a million lists take it more than a
second. Long strings, as images are, are cheap. So values are counted first, and each number is looked at by its length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from auras_ros.serve.errors import ApiError

MOST_VALUES = 1 << 16  # commas, brackets and braces outside texts; a prompt of token ids has one for each
MOST_ESCAPES = 1 << 21  # two for each character of the longest prompt
MOST_DIGITS = 64  # of a number; a float64 has 25 characters at most
MOST_NAME = 4096  # characters of an object's key
PIECE = 1 << 20  # bytes that are counted at a time
SHOWN = 64  # characters of a name in an error


def read_json(body: bytes) -> dict[str, Any]:
    """The body's object. Raises ApiError for what is no JSON, not an object, or beyond a bound."""
    _check_values(body)
    try:
        values = json.loads(
            body.decode(),
            parse_constant=_refuse_constant,
            parse_int=_read_int,
            parse_float=_read_float,
            object_pairs_hook=_without_repeats,
        )
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ApiError(400, "the body is not a JSON object")
    return values


def _check_values(body: bytes) -> None:
    """Raises ApiError for a body with too many values or escapes."""
    escapes = body.count(b"\\")
    if escapes > MOST_ESCAPES:
        raise ApiError(400, f"the body has more than {MOST_ESCAPES} backslashes")
    if _count_separators(body) <= MOST_VALUES:
        return
    if escapes:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quotation mark now begins or ends a text
    quotes = body.count(b'"')
    if quotes <= 4 * MOST_VALUES:  # a name and a text for each comma
        outside = b"".join(body.split(b'"')[::2])
        if _count_separators(outside) <= MOST_VALUES:
            return
    raise ApiError(400, f"the body has more than {MOST_VALUES} values (commas, brackets and braces)")


def _count_separators(text: bytes) -> int:
    """Stops above the limit. Other threads have the interpreter between two pieces."""
    count = 0
    for begin in range(0, len(text), PIECE):
        count += sum(text.count(separator, begin, begin + PIECE) for separator in (b",", b"[", b"{"))
        if count > MOST_VALUES:
            break
    return count


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _read_int(digits: str) -> int:
    return int(_checked(digits))


def _read_float(digits: str) -> float:
    return float(_checked(digits))


def _checked(digits: str) -> str:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} characters, expected {MOST_DIGITS} at most")
    return digits


def _without_repeats(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    values = dict(pairs)
    longest = max(map(len, values), default=0)
    if longest > MOST_NAME:
        raise ValueError(f"a key of {longest} characters, expected {MOST_NAME} at most")
    if len(values) != len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:SHOWN]!r} stands in one object twice")
            seen.add(key)
    return values
