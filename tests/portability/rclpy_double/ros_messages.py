"""`std_msgs.msg`, `sensor_msgs.msg`, `std_srvs.srv` and their like, as strict as the generated classes of ROS 2.

They follow rosidl_generator_py with its field checks on (ROS_PYTHON_CHECK_FIELDS=1 in Jazzy; Humble always
checks): an int is no float, an ndarray is no sequence, a constructor converts numbers and a setter does not.
The definitions are those of rosbags. A package that it does not know cannot be imported.
"""

from __future__ import annotations

import array
import collections
import importlib.abc
import importlib.machinery
import math
import sys
from collections.abc import Callable, Sequence, Set
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

STORE = get_typestore(Stores.ROS2_JAZZY).fielddefs
CODES = {
    "float32": "f", "float64": "d", "int8": "b", "uint8": "B", "char": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
}  # fmt: skip
IDL = {"float32": "float", "float64": "double", "bool": "boolean", "byte": "octet", "char": "uint8"}
PLACEHOLDER = "structure_needs_at_least_one_member"
DEFAULTS: dict[str, dict[str, Any]] = {"geometry_msgs/msg/Quaternion": {"w": 1.0}}
SERVICES = {
    "std_srvs/srv/Empty": "---\n",
    "std_srvs/srv/SetBool": "bool data\n---\nbool success\nstring message\n",
    "std_srvs/srv/Trigger": "---\nbool success\nstring message\n",
    "lifecycle_msgs/srv/ChangeState": "lifecycle_msgs/Transition transition\n---\nbool success\n",
    "lifecycle_msgs/srv/GetState": "---\nlifecycle_msgs/State current_state\n",
    "lifecycle_msgs/srv/GetAvailableStates": "---\nlifecycle_msgs/State[] available_states\n",
    "lifecycle_msgs/srv/GetAvailableTransitions": (
        "---\nlifecycle_msgs/TransitionDescription[] available_transitions\n"
    ),
    "rcl_interfaces/srv/DescribeParameters": (
        "string[] names\n---\nrcl_interfaces/ParameterDescriptor[] descriptors\n"
    ),
    "rcl_interfaces/srv/GetParameterTypes": "string[] names\n---\nuint8[] types\n",
    "rcl_interfaces/srv/GetParameters": "string[] names\n---\nrcl_interfaces/ParameterValue[] values\n",
    "rcl_interfaces/srv/ListParameters": (
        "uint64 DEPTH_RECURSIVE=0\nstring[] prefixes\nuint64 depth\n---\nrcl_interfaces/ListParametersResult result\n"
    ),
    "rcl_interfaces/srv/SetParameters": (
        "rcl_interfaces/Parameter[] parameters\n---\nrcl_interfaces/SetParametersResult[] results\n"
    ),
    "rcl_interfaces/srv/SetParametersAtomically": (
        "rcl_interfaces/Parameter[] parameters\n---\nrcl_interfaces/SetParametersResult result\n"
    ),
}


def check(condition: bool, field: str, expected: str, value: Any) -> None:
    if not condition:
        raise AssertionError(f"The {field!r} field must be {expected}, got {type(value).__name__} {value!r:.60}")


def _scalar(base: str, name: str) -> Callable[[Any], Any]:
    """The check of one value of a basic type."""
    if base == "string":
        return lambda value: check(isinstance(value, str), name, "of type 'str'", value)
    if base == "bool":
        return lambda value: check(isinstance(value, bool), name, "of type 'bool'", value)
    if base == "byte":
        return lambda value: check(
            isinstance(value, (bytes, bytearray)) and len(value) == 1, name, "'bytes' of length 1", value
        )
    if base in ("float32", "float64"):
        bound = float(np.finfo(base).max)

        def number(value: Any) -> None:
            check(isinstance(value, float), name, "of type 'float'", value)
            check(not abs(value) > bound or math.isinf(value), name, f"a {base}", value)

        return number
    limits = np.iinfo("uint8" if base == "char" else base)

    def integer(value: Any) -> None:
        check(isinstance(value, int), name, "of type 'int'", value)
        check(limits.min <= value <= limits.max, name, f"an integer of {base}", value)

    return integer


def _items(value: Any, name: str, one: Callable[[Any], Any], length: int, fixed: bool) -> None:
    sequence = isinstance(value, (Sequence, Set, collections.UserList)) and not isinstance(
        value, (str, collections.UserString)
    )
    check(sequence, name, "a set or sequence", value)
    check(not length or (len(value) == length if fixed else len(value) <= length), name, f"of length {length}", value)
    for item in value:
        one(item)


class Field:
    """One field: how a constructor's argument is converted, and what a setter takes."""

    def __init__(self, ros_type: str, name: str, description: Any) -> None:
        self.name, self.slot = name, f"_{name}"
        self.fixed = description[0] == Nodetype.ARRAY
        self.many = self.fixed or description[0] == Nodetype.SEQUENCE
        self.length: int
        inner, self.length = description[1] if self.many else (description, 0)
        self.nested = message(inner[1]) if inner[0] == Nodetype.NAME else None
        self.base = inner[1] if self.nested else inner[1][0]
        self.code = CODES.get(self.base) if self.many else None
        self.default = DEFAULTS.get(ros_type, {}).get(name)
        if self.nested is not None:
            nested = self.nested
            self.one: Callable[[Any], Any] = lambda value: check(
                isinstance(value, nested), name, f"a sub message of type {nested.__name__!r}", value
            )
        else:
            self.one = _scalar(self.base, name)

    def make(self) -> Any:
        if self.default is not None:
            return self.default
        zeros: dict[str, Callable[[], Any]] = {"string": str, "bool": bool, "byte": lambda: b"\0"}
        number: Callable[[], Any] = float if self.base.startswith("float") else int
        one = self.nested or zeros.get(self.base, number)
        if not self.many:
            return one()
        return [one() for _ in range(self.length if self.fixed else 0)]

    def construct(self, value: Any) -> Any:
        if self.code and self.fixed:
            return np.array(value, dtype=np.dtype(self.code))
        return array.array(self.code, value) if self.code else value

    def accept(self, value: Any) -> Any:
        if not self.many:
            self.one(value)
            return value
        if self.code and isinstance(value, np.ndarray) and self.fixed:
            check(value.dtype == np.dtype(self.code) and value.size == self.length, self.name, self.base, value)
            return value
        if self.code and isinstance(value, array.array):
            check(value.typecode == self.code, self.name, f"an array of type code {self.code!r}", value)
            return value
        _items(value, self.name, self.one, self.length, self.fixed)
        return self.construct(value)

    def idl(self) -> str:
        base = str(self.base).replace("/msg/", "/") if self.nested else IDL.get(self.base, self.base)
        if not self.many:
            return base
        bound = f", {self.length}" if self.length else ""
        return f"{base}[{self.length}]" if self.fixed else f"sequence<{base}{bound}>"


class Message:
    """Base of the generated classes; rclpy itself has none, so nothing may ask for it."""

    __slots__ = ("_check_fields",)
    FIELDS: ClassVar[dict[str, Field]] = {}

    def __init__(self, **values: Any) -> None:
        unknown = sorted(values.keys() - self.FIELDS.keys() - {"check_fields"})
        if unknown:
            raise AssertionError(f"{type(self).__name__}: invalid arguments passed to constructor: {unknown}")
        for name, field in self.FIELDS.items():
            setattr(self, name, field.construct(values[name] if name in values else field.make()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and all(
            np.array_equal(getattr(self, n), getattr(other, n)) if f.code else getattr(self, n) == getattr(other, n)
            for n, f in self.FIELDS.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r:.80}' for name in self.FIELDS)})"

    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]:
        return {name: field.idl() for name, field in cls.FIELDS.items()}


def _property(field: Field) -> property:
    return property(
        lambda self: getattr(self, field.slot),
        lambda self, value: setattr(self, field.slot, field.accept(value)),
    )


@cache
def message(ros_type: str) -> type[Message]:
    """The class of 'package/msg/Name'. KeyError where there is no such type."""
    constants, definitions = STORE[ros_type]
    fields = {name: Field(ros_type, name, what) for name, what in definitions if name != PLACEHOLDER}
    values = {name: bytes([int(value)]) if kind == "byte" else value for name, kind, value in constants}
    package, _, name = ros_type.split("/")
    space: dict[str, Any] = {"__slots__": tuple(f.slot for f in fields.values()), "FIELDS": fields}
    space |= values | {field.name: _property(field) for field in fields.values()}
    return type(name, (Message,), space | {"__module__": f"{package}.msg"})


@cache
def service(ros_type: str) -> type:
    """The class of 'package/srv/Name', with Request and Response. KeyError where there is no such type."""
    parts: dict[str, Any] = {}
    for text, part in zip(SERVICES[ros_type].split("---\n"), ("Request", "Response"), strict=True):
        [definition] = get_types_from_msg(text or "\n", f"{ros_type}_{part}").values()
        STORE[f"{ros_type}_{part}"] = definition
        parts[part] = message(f"{ros_type}_{part}")
    return type(ros_type.rsplit("/", 1)[1], (), parts | {"IS_SERVICE": True})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the message packages that rosbags defines, each with its `msg` and `srv`."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        package, _, kind = fullname.partition(".")
        known = {name.split("/")[0] for name in (*STORE, *SERVICES)}
        if package not in known or kind not in ("", "msg", "srv"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=not kind)

    def exec_module(self, module: ModuleType) -> None:
        package, _, kind = module.__name__.partition(".")
        make, names = (message, STORE) if kind == "msg" else (service, SERVICES)
        prefix = f"{package}/{kind}/"
        module.__all__ = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]  # type: ignore[attr-defined]
        for name in module.__all__ if kind else ():
            setattr(module, name, make(prefix + name))


def install() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
