"""One parameter: its name, type and value, and its form as a ROS message. As rclpy.parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from .messages import message_type

_FIELDS = (
    None, "bool_value", "integer_value", "double_value", "string_value", "byte_array_value", "bool_array_value",
    "integer_array_value", "double_array_value", "string_array_value",
)  # fmt: skip


@dataclass(frozen=True, init=False)
class Parameter:
    """A named, typed value; if no type is given, it is that of the value."""

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
            """The type of a Python value. Raises TypeError if a parameter cannot hold it."""
            if value is None:
                return cls.NOT_SET
            scalar = cls._of_scalar(value)
            if scalar is not None:
                return scalar
            if isinstance(value, np.ndarray):
                value = value.tolist()
            if not isinstance(value, Sequence) and not hasattr(value, "typecode"):
                raise TypeError(f"a parameter cannot hold {type(value).__name__}")
            kinds = {cls._of_scalar(item) for item in value} or {cls.STRING}
            kind = kinds.pop()
            if kinds or kind is None:
                raise TypeError("a parameter array must hold values of one type")
            return cls.BYTE_ARRAY if kind is cls.BYTE_ARRAY else cls[f"{kind.name}_ARRAY"]

        @classmethod
        def _of_scalar(cls, value: Any) -> Parameter.Type | None:
            for python, kind in (
                (bool, cls.BOOL), (int, cls.INTEGER), (float, cls.DOUBLE), (str, cls.STRING), (bytes, cls.BYTE_ARRAY)
            ):  # fmt: skip
                if isinstance(value, python):
                    return kind
            return None

        def check(self, value: Any) -> bool:
            """Whether `value` is of this type; an empty list is of every array type."""
            if self is Parameter.Type.NOT_SET:
                return value is None
            if isinstance(value, (list, tuple)) and not value:
                return int(self.value) >= int(Parameter.Type.BYTE_ARRAY.value)
            return Parameter.Type.from_parameter_value(value) is self

    name: str
    type_: Parameter.Type
    value: Any

    def __init__(self, name: str, type_: Parameter.Type | None = None, value: Any = None) -> None:
        if type_ is None:
            type_ = Parameter.Type.from_parameter_value(value)
        if not isinstance(type_, Parameter.Type):
            raise TypeError(f"parameter {name}: type_ must be a Parameter.Type, got {type_!r}")
        if not type_.check(value):
            raise ValueError(f"parameter {name}: {value!r} is not of type {type_.name}")
        vars(self).update(name=name, type_=type_, value=value)

    def get_parameter_value(self) -> Any:
        """The rcl_interfaces/ParameterValue."""
        message = message_type("rcl_interfaces/msg/ParameterValue")(type=self.type_.value)
        if field := _FIELDS[self.type_.value]:
            setattr(message, field, self.value)
        return message

    def to_parameter_msg(self) -> Any:
        """The rcl_interfaces/Parameter."""
        return message_type("rcl_interfaces/msg/Parameter")(name=self.name, value=self.get_parameter_value())

    @classmethod
    def from_parameter_msg(cls, message: Any) -> Parameter:
        kind = Parameter.Type(message.value.type)
        field = _FIELDS[kind.value]
        value = getattr(message.value, field) if field else None
        return cls(message.name, kind, value.tolist() if isinstance(value, np.ndarray) else value)
