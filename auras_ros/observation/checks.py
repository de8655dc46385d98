"""Small checks for frozen specifications; each raises SpecError with owner and field. Never coerces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from auras_ros.number_checks import MAX_NUMBER as MAX_NUMBER
from auras_ros.number_checks import is_int as is_int
from auras_ros.number_checks import is_number as is_number


class SpecError(ValueError):
    """A specification that contradicts itself; the text names owner and field."""


def known_keys(owner: str, raw: object, known: set[str], required: set[str]) -> None:
    """Check that it is an object with all `required` keys and no others than `known`."""
    if not isinstance(raw, Mapping):
        raise SpecError(f"{owner}: expected an object, got {raw!r}")
    for key in raw:
        if key not in known:
            raise SpecError(f"{owner}: unknown key {key!r}; known: {', '.join(sorted(known))}")
    for key in sorted(required):
        if key not in raw:
            raise SpecError(f"{owner}: {key}: missing")


def object_of(owner: str, cls: Any, raw: object) -> dict[str, Any]:
    """A copy of an object whose keys are the fields of the dataclass `cls`."""
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    known_keys(owner, raw, {f.name for f in fields(cls)}, required)
    return dict(raw) if isinstance(raw, Mapping) else {}


def check_name(owner: str, value: object) -> None:
    """Non-empty text."""
    if not isinstance(value, str) or not value:
        raise SpecError(f"{owner}: name: {value!r} is not a name")


def check_positive(owner: str, spec: object, *names: str) -> None:
    """Integers of one or more."""
    for name in names:
        value = getattr(spec, name)
        if not is_int(value) or value < 1:
            raise SpecError(f"{owner}: {name}: {value!r} is not an integer of one or more")


def check_choice(owner: str, spec: object, name: str, known: tuple[str, ...]) -> None:
    """One of the known words."""
    value = getattr(spec, name)
    if value not in known:
        raise SpecError(f"{owner}: {name}: {value!r} is not one of {', '.join(known)}")


def numbers(owner: str, name: str, values: object, length: int) -> tuple[float, ...]:
    """A list of `length` finite numbers, as a tuple."""
    if not isinstance(values, list | tuple) or len(values) != length or not all(map(is_number, values)):
        raise SpecError(f"{owner}: {name}: expected {length} finite numbers, got {values!r}")
    return tuple(float(value) for value in values)
