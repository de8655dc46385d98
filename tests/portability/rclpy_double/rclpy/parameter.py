"""rclpy.parameter."""

from __future__ import annotations

import array
from enum import Enum
from typing import Any

from rclpy_recording import strict

_ARRAYS: tuple[tuple[type, str], ...] = (
    (bytes, "BYTE_ARRAY"),
    (bool, "BOOL_ARRAY"),
    (int, "INTEGER_ARRAY"),
    (float, "DOUBLE_ARRAY"),
    (str, "STRING_ARRAY"),
)
_FIELDS = ("", "bool_value", "integer_value", "double_value", "string_value", "byte_array_value",
           "bool_array_value", "integer_array_value", "double_array_value", "string_array_value")  # fmt: skip


class _Type(Enum):
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
    def from_parameter_value(cls, parameter_value: Any) -> _Type:
        if parameter_value is None:
            return cls.NOT_SET
        scalars: tuple[tuple[type, str], ...] = ((bool, "BOOL"), (int, "INTEGER"), (float, "DOUBLE"), (str, "STRING"))
        for kind, name in scalars:
            if isinstance(parameter_value, kind):
                return cls[name]
        if isinstance(parameter_value, (list, tuple, array.array)):
            for kind, name in _ARRAYS:
                if all(isinstance(one, kind) for one in parameter_value):
                    return cls[name]
        raise TypeError(f"The given value is not one of the allowed types {parameter_value!r}")

    def check(self, parameter_value: Any) -> bool:
        found = _Type.from_parameter_value(parameter_value)
        return found is self or (isinstance(parameter_value, (list, tuple)) and not len(parameter_value))


@strict
class Parameter:
    Type = _Type

    def __init__(self, name: str, type_: _Type | None = None, value: Any = None) -> None:
        self.name, self.value = name, value
        self.type_ = _Type.from_parameter_value(value) if type_ is None else type_
        if not self.type_.check(value):
            raise ValueError(f"Type '{self.type_}' and value '{value}' do not agree")

    def get_parameter_value(self) -> Any:
        from rcl_interfaces.msg import ParameterValue

        made = ParameterValue(type=self.type_.value)
        if self.type_ is not _Type.NOT_SET:
            setattr(made, _FIELDS[self.type_.value], self.value)
        return made

    def to_parameter_msg(self) -> Any:
        from rcl_interfaces.msg import Parameter as Message

        return Message(name=self.name, value=self.get_parameter_value())

    @classmethod
    def from_parameter_msg(cls, param_msg: Any) -> Parameter:
        kind = _Type(param_msg.value.type)
        value = getattr(param_msg.value, _FIELDS[kind.value]) if kind is not _Type.NOT_SET else None
        return cls(param_msg.name, kind, value)
