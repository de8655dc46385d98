"""Message classes with rclpy's interface, made from rosbags' Jazzy definitions at their first use.

A message has every field with its ROS default, takes keyword arguments, and converts or refuses assigned
values. `serialize` and `deserialize` are the whole codec. Nothing here uses the transport.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from . import cdr, vision_msgs
from .fields import INTEGERS, Field, coercer, default_factory

_PLACEHOLDER = "structure_needs_at_least_one_member"
# Defaults that differ from zero; the definitions in rosbags do not carry them.
_DEFAULTS: dict[str, dict[str, Any]] = {"geometry_msgs/msg/Quaternion": {"w": 1.0}}

STORE = get_typestore(Stores.ROS2_JAZZY)
for _name, _text in vision_msgs.DEFINITIONS.items():
    STORE.register(get_types_from_msg(_text, _name))


class Message:
    """Base of all message classes; `_ros_type` is 'package/msg/Name'."""

    __slots__ = ()
    _ros_type: ClassVar[str] = ""
    _fields: ClassVar[tuple[Field, ...]] = ()
    _coerce: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    _default: ClassVar[dict[str, Callable[[], Any]]] = {}
    _store: ClassVar[dict[str, Callable[[Any, Any], None]]] = {}

    def __init__(self, **values: Any) -> None:
        for name, default in self._default.items():
            if name not in values:
                self._store[name](self, default())
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        convert = self._coerce.get(name)
        if convert is None:
            raise AttributeError(f"{self._ros_type} has no field {name!r}; it has {', '.join(self._coerce)}")
        self._store[name](self, convert(value))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) if f.numeric and f.kind != "one"
                   else getattr(self, f.name) == getattr(other, f.name) for f in self._fields)  # fmt: skip

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        package, _, name = self._ros_type.split("/")
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self._fields)
        return f"{package}.{name}({shown})"


def _field(name: str, description: Any) -> Field:
    kind, length, inner = "one", 0, description
    if description[0] in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        kind = "array" if description[0] == Nodetype.ARRAY else "sequence"
        inner, length = description[1]
    if inner[0] == Nodetype.NAME:
        return Field(name, inner[1], True, kind, length, 0)
    base, bound = inner[1]
    return Field(name, base, False, kind, length, bound if base == "string" else 0)


@cache
def message_type(ros_type: str) -> Any:
    """The class of 'package/msg/Name' (or of a service's '…_Request', '…_Response').

    Raises KeyError, naming the type, if it has no definition.
    """
    if ros_type not in STORE.fielddefs:
        raise KeyError(f"no definition of {ros_type}: rosbags' Jazzy types have none")
    constants, definitions = STORE.fielddefs[ros_type]
    fields = tuple(_field(name, what) for name, what in definitions if name != _PLACEHOLDER)
    nested = {field.name: message_type(field.base) if field.nested else None for field in fields}
    values: dict[str, Any] = {name: _constant(kind, value) for name, kind, value in constants}
    values.update(
        __slots__=tuple(field.name for field in fields),
        __module__=__name__,
        _ros_type=ros_type,
        _fields=fields,
        _coerce={f.name: coercer(f, ros_type, nested[f.name]) for f in fields},
        _default={f.name: default_factory(f, nested[f.name]) for f in fields},
    )
    for name, value in _DEFAULTS.get(ros_type, {}).items():
        values["_default"][name] = lambda value=value: value
    made = type(ros_type.rsplit("/", 1)[1], (Message,), values)
    made._store = {f.name: made.__dict__[f.name].__set__ for f in fields}  # type: ignore[attr-defined]
    return made


def _constant(kind: str, value: Any) -> Any:
    if kind == "byte":
        return bytes([int(value)])
    return int(value) if kind in INTEGERS else value


@cache
def _encoder(ros_type: str) -> cdr.Encode:
    cls = message_type(ros_type)
    steps = []
    for field in cls._fields:
        nested = _encoder(field.base) if field.nested else None
        nested_type = message_type(field.base) if field.nested else None
        step = cdr.encoder(field, ros_type, nested, nested_type)
        steps.append((cls.__dict__[field.name].__get__, step))

    def encode(out: cdr.CdrWriter, message: Any) -> None:
        for get, step in steps:
            step(out, get(message))
        if not steps:  # a type without fields has one octet on the wire
            out.buffer.append(0)

    return encode


@cache
def _decoder(ros_type: str, order: str) -> cdr.Decode:
    cls = message_type(ros_type)
    steps = [(cls._store[field.name],
              cdr.decoder(field, order, _decoder(field.base, order) if field.nested else None))
             for field in cls._fields]  # fmt: skip
    new = cls.__new__

    def decode(view: memoryview, at: int) -> tuple[Any, int]:
        message = new(cls)
        for store, step in steps:
            value, at = step(view, at)
            store(message, value)
        return message, at if steps else at + 1

    return decode


def serialize(message: Any) -> list[Any]:
    """The CDR payload as pieces for a gather write; large arrays are the message's own memory, not copies."""
    out = cdr.CdrWriter()
    _encoder(message._ros_type)(out, message)
    return out.finish()


def serialize_bytes(message: Any) -> bytes:
    """The CDR payload in one piece."""
    return b"".join(serialize(message))


def deserialize(payload: memoryview | bytes, ros_type: str) -> Any:
    """The message in a payload; numeric arrays are views on it, read-only if the payload is.

    Raises CdrError if the payload is not exactly one message of that type.
    """
    view = memoryview(payload)
    order = cdr.byte_order(view)
    body = view[4:]
    try:
        message, end = _decoder(ros_type, order)(body, 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise cdr.CdrError(f"not a {ros_type}: {error}") from error
    left_over = len(body) - end
    if left_over < 0 or left_over > 3:
        raise cdr.CdrError(f"not a {ros_type}: {left_over} bytes left over")
    return message


def deserialize_message(serialized_message: memoryview | bytes, message_type: Any) -> Any:
    """The message in these bytes, as rclpy.serialization. Raises CdrError."""
    return deserialize(serialized_message, message_type._ros_type)
