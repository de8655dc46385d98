"""One parameter: its name, type and value, and its form as a ROS message. As rclpy.parameter."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from .messages import message_type

_FIELDS = (
    None, "bool_value", "integer_value", "double_value", "string_value", "byte_array_value", "bool_array_value",
    "integer_array_value", "double_array_value", "string_array_value",
)  # fmt: skip


class Parameter:
    """A named, typed value; the type follows from the value where it is not given."""

    class Type(Enum):
        NOT_SET = 0
        BOOL = 1
        INTEGER = 2
        DOUBLE = 3
        STRING = 4
        BYTE_ARRAY = 5
        BOOL_ARRAY = 6
        INTEGER_ARRAY = 7
        DOUBLE_ARRAY = 8
        STRING_ARRAY = 9

        @classmethod
        def from_parameter_value(cls, value: Any) -> Parameter.Type:
            """The type of a Python value; TypeError where a parameter cannot hold it."""
            if value is None:
                return cls.NOT_SET
            for kind, python in ((cls.BOOL, bool), (cls.INTEGER, int), (cls.DOUBLE, float), (cls.STRING, str)):
                if isinstance(value, python):
                    return kind
            if isinstance(value, bytes):
                return cls.BYTE_ARRAY
            if isinstance(value, np.ndarray):
                value = value.tolist()
            if isinstance(value, Sequence) or hasattr(value, "typecode"):
                return cls._of_items(list(value))
            raise TypeError(f"a parameter cannot hold {type(value).__name__}")

        @classmethod
        def _of_items(cls, items: list[Any]) -> Parameter.Type:
            if items and all(isinstance(item, bytes) for item in items):
                return cls.BYTE_ARRAY
            if items and all(isinstance(item, bool) for item in items):
                return cls.BOOL_ARRAY
            if items and all(isinstance(item, int) and not isinstance(item, bool) for item in items):
                return cls.INTEGER_ARRAY
            if items and all(isinstance(item, float) for item in items):
                return cls.DOUBLE_ARRAY
            if all(isinstance(item, str) for item in items):
                return cls.STRING_ARRAY
            raise TypeError("a parameter array must hold values of one type")

        def check(self, value: Any) -> bool:
            """True where `value` is of this type; an empty list is of every array type."""
            if self is Parameter.Type.NOT_SET:
                return value is None
            if isinstance(value, (list, tuple)) and not value:
                return int(self.value) >= int(Parameter.Type.BYTE_ARRAY.value)
            return Parameter.Type.from_parameter_value(value) is self

    def __init__(self, name: str, type_: Parameter.Type | None = None, value: Any = None) -> None:
        if type_ is None:
            type_ = Parameter.Type.from_parameter_value(value)
        if not isinstance(type_, Parameter.Type):
            raise TypeError(f"parameter {name}: type_ must be a Parameter.Type, got {type_!r}")
        if not type_.check(value):
            raise ValueError(f"parameter {name}: {value!r} is not of type {type_.name}")
        self._name, self._type, self._value = name, type_, value

    @property
    def name(self) -> str:
        return self._name

    @property
    def type_(self) -> Parameter.Type:
        return self._type

    @property
    def value(self) -> Any:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameter) and (self.name, self.type_, self.value) == (
            other.name, other.type_, other.value)  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Parameter(name={self._name!r}, type_={self._type.name}, value={self._value!r})"

    def get_parameter_value(self) -> Any:
        """The rcl_interfaces/ParameterValue."""
        message = message_type("rcl_interfaces/msg/ParameterValue")(type=self._type.value)
        if field := _FIELDS[self._type.value]:
            setattr(message, field, self._value)
        return message

    def to_parameter_msg(self) -> Any:
        """The rcl_interfaces/Parameter."""
        return message_type("rcl_interfaces/msg/Parameter")(name=self._name, value=self.get_parameter_value())

    @classmethod
    def from_parameter_msg(cls, message: Any) -> Parameter:
        kind = Parameter.Type(message.value.type)
        field = _FIELDS[kind.value]
        value = getattr(message.value, field) if field else None
        return cls(message.name, kind, value.tolist() if isinstance(value, np.ndarray) else value)
