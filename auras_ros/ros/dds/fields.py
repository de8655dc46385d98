"""Message fields: their types, defaults, conversion of assigned values, range and type errors.

The definitions come from rosbags' Jazzy store; its own classes have no defaults and send int64 data in a
float64 field as garbage. Here every value is converted, or refused with the field's name. Nothing here knows CDR.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1), "uint8": (0, 2**8 - 1), "char": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1), "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip
FLOATS = {"float32", "float64"}
FLOAT32_MAX = float(np.finfo(np.float32).max)
DTYPES = {name: np.dtype("uint8" if name == "char" else name) for name in (*INTEGERS, *FLOATS)}
DTYPES["bool"] = np.dtype(np.bool_)


@dataclass(frozen=True)
class Field:
    """One field: `base` is a primitive ('uint8', 'string', 'byte', …) or a message type name.

    kind: 'one', 'array' (exactly `length`) or 'sequence' (at most `length`, 0 for no bound).
    string_bound: how many UTF-8 bytes a string may have, 0 for no bound.
    """

    name: str
    base: str
    nested: bool
    kind: str
    length: int
    string_bound: int

    @property
    def numeric(self) -> bool:
        """True if an array or sequence of it is one numpy array."""
        return self.base in DTYPES


def _type_error(where: str, expected: str, value: Any) -> TypeError:
    return TypeError(f"{where}: expected {expected}, got {type(value).__name__}")


def _integer(where: str, base: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _type_error(where, base, value) from None
    low, high = INTEGERS[base]
    if not low <= number <= high:
        raise ValueError(f"{where}: {number} is outside {base}'s {low} … {high}")
    return number


def _float(where: str, base: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)) or not hasattr(value, "__float__"):
        raise _type_error(where, base, value)
    number = float(value)
    if base == "float32" and FLOAT32_MAX < abs(number) < float("inf"):
        raise ValueError(f"{where}: {number} is outside float32's range")
    return number


def _bool(where: str, base: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _type_error(where, base, value)
    return bool(value)


def _byte(where: str, base: str, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)) and len(value) == 1:
        return bytes(value)
    raise TypeError(f"{where}: expected bytes of length 1, got {value!r}"[:200])


def _string(where: str, value: Any, bound: int) -> str:
    if not isinstance(value, str):
        raise _type_error(where, "str", value)
    if bound and len(value.encode()) > bound:
        raise ValueError(f"{where}: longer than its bound of {bound} bytes")
    return value


def _numbers(where: str, base: str, value: Any) -> Any:
    """A one-dimensional array of the field's dtype; the caller's own memory if it already is one."""
    dtype = DTYPES[base]
    if isinstance(value, (bytes, bytearray)):
        value = np.frombuffer(value, np.uint8) if value else ()
    elif isinstance(value, str) or not hasattr(value, "__len__"):
        raise _type_error(where, f"a sequence of {base}", value)
    source = value if isinstance(value, np.ndarray) else _as_array(where, base, value)
    if source.size == 0:
        return np.empty(0, dtype)
    if source.dtype != dtype:
        source = _converted(where, base, source)
    return np.ascontiguousarray(source).reshape(-1)


def _as_array(where: str, base: str, value: Any) -> Any:
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise TypeError(f"{where}: not a sequence of {base}: {error}") from None


def _converted(where: str, base: str, source: Any) -> Any:
    dtype = DTYPES[base]
    kind, accepted = source.dtype.kind, {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}[dtype.kind]
    if kind not in accepted:
        raise TypeError(f"{where}: expected {base} values, got an array of {source.dtype}")
    if dtype.kind in "iu":
        low, high = INTEGERS[base]
        least, greatest = int(source.min()), int(source.max())
        if least < low or greatest > high:
            raise ValueError(f"{where}: values {least} … {greatest} are outside {base}'s {low} … {high}")
    if base == "float32":
        finite = np.abs(source[np.isfinite(source)])
        if finite.size and float(finite.max()) > FLOAT32_MAX:
            raise ValueError(f"{where}: {float(finite.max())} is outside float32's range")
    return source.astype(dtype)


def check_length(where: str, field: Field, count: int) -> None:
    """Raises ValueError if an array does not have its fixed length, or a sequence is longer than its bound."""
    if field.kind == "array" and count != field.length:
        raise ValueError(f"{where}: needs exactly {field.length} values, got {count}")
    if field.kind == "sequence" and field.length and count > field.length:
        raise ValueError(f"{where}: at most {field.length} values, got {count}")


def one_coercer(field: Field, where: str, nested: type | None) -> Callable[[Any], Any]:
    """The function that converts one value to the field's type, or raises an error that names the field."""
    base = field.base
    if nested is not None:
        expected = nested

        def message(value: Any) -> Any:
            if not isinstance(value, expected):
                raise _type_error(where, base, value)
            return value

        return message
    if base == "string":
        return lambda value: _string(where, value, field.string_bound)
    convert = _float if base in FLOATS else {"bool": _bool, "byte": _byte}.get(base, _integer)
    return lambda value: convert(where, base, value)


def coercer(field: Field, owner: str, nested: type | None) -> Callable[[Any], Any]:
    """The function that converts a value to the type of the field of message `owner`, or raises."""
    where = f"{owner}.{field.name}"
    if field.kind == "one":
        return one_coercer(field, where, nested)
    if field.numeric:

        def numbers(value: Any) -> Any:
            result = _numbers(where, field.base, value)
            check_length(where, field, result.size)
            return result

        return numbers
    single = one_coercer(field, where, nested)

    def items(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise _type_error(where, f"a sequence of {field.base}", value)
        # The caller's list is kept, not copied, so later appends count; its items are checked again when sent.
        result = value if isinstance(value, list) else list(value)
        for index, item in enumerate(result):
            result[index] = single(item)
        check_length(where, field, len(result))
        return result

    return items


def default_factory(field: Field, nested: type | None) -> Callable[[], Any]:
    """The function that returns the field's ROS default."""
    plain: dict[str, Callable[[], Any]] = {"string": str, "bool": bool, "byte": lambda: b"\0"}
    one = nested or plain.get(field.base, float if field.base in FLOATS else int)
    if field.kind == "one":
        return one
    count = field.length if field.kind == "array" else 0
    if field.numeric:
        return lambda: np.zeros(count, DTYPES[field.base])
    return lambda: [one() for _ in range(count)]
