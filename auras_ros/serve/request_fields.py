"""How the fields of a request are read: nothing is converted, and what would change the answer is never ignored.

Lengths are looked at before what is in a list, and validation stops at the first error: an error for each of a million
elements took gigabytes.

A field that asks for nothing counts as absent: one that is null, false or empty, and one of those that a class names as
`ignored`, because no answer depends on them. Every other unknown field is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from auras_ros.serve.errors import ApiError
from auras_ros.serve.json_body import SHOWN, read_json
from auras_ros.spelling import nearest

UNKNOWN = "unknown_field"


def at_most(count: int) -> BeforeValidator:
    """Looks at the length of a list or an object before anything in it."""

    def check(value: Any) -> Any:
        if isinstance(value, list | dict) and len(value) > count:
            raise ValueError(f"{len(value)} given, expected at most {count}")
        return value

    return BeforeValidator(check)


def only(*values: object) -> BeforeValidator:
    """For a field that is known, but not what other values of it ask for."""

    def check(value: Any) -> Any:
        if not any(type(value) is type(taken) and value == taken for taken in values):
            raise ValueError(f"only {' or '.join(map(_json_text, values))} is taken")
        return value

    return BeforeValidator(check)


def asks_nothing(value: object) -> bool:
    """Whether a field with this value is as good as absent."""
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


class RequestFields(BaseModel):
    """One object of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)
    # Fields on which no answer depends, at any value.
    ignored: ClassVar[frozenset[str]] = frozenset()
    # Fields whose empty text, list or object means something.
    empty_counts: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        """Raises at the first unknown name: pydantic builds an error for each."""
        if not isinstance(value, dict):
            return value
        known = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, given in value.items():
            if name not in known and name not in cls.ignored and not asks_nothing(given):
                meant = nearest(str(name)[:SHOWN], known)
                hint = f"; did you mean {meant}?" if meant else ""
                raise PydanticCustomError(UNKNOWN, "not a field that is taken{hint}", {"name": name, "hint": hint})
        return {
            name: value[name]
            for name, field in known.items()
            if name in value and cls._is_there(name, value[name], field.is_required())
        }

    @classmethod
    def _is_there(cls, name: str, value: object, is_required: bool) -> bool:
        if value is None:
            return False
        is_empty = isinstance(value, str | list | dict) and not value
        return not is_empty or is_required or name in cls.empty_counts


Fields = TypeVar("Fields", bound=RequestFields)


def read_fields(body: bytes, kind: type[Fields]) -> Fields:
    """Raises ApiError, naming the field. At the first error validation stops."""
    return validated(read_json(body), kind)


def validated(values: Mapping[str, Any], kind: type[Fields]) -> Fields:
    """Raises ApiError, naming the field."""
    try:
        fields = kind.model_validate(values)
    except ValidationError as error:
        raise _named(error) from error
    except RecursionError as error:
        raise ApiError(400, "the body is nested too deeply") from error
    return fields


def _named(error: ValidationError) -> ApiError:
    """The first of the errors."""
    first = error.errors(include_url=False, include_input=False)[0]
    steps = list(first["loc"])
    is_unknown = first["type"] == UNKNOWN
    if is_unknown:
        steps.append(str(first["ctx"]["name"]))
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step[:SHOWN]}"
    field = path.removeprefix(".")
    text = first["msg"].removeprefix("Value error, ")
    return ApiError(400, f"{field}: {text}", field=field, code=UNKNOWN if is_unknown else None)


def _json_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if not isinstance(value, list) else str(value).replace("'", '"')
