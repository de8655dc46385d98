"""Reads a pickle as data: an interpreter of pickle opcodes that cannot call anything.

A pickle is a program that builds objects and may call any function of any module. Here a global becomes its name
(`Name`), and a call becomes a record of the callable and its arguments (`PickledObject`). Nothing is imported, looked
up or run. Numbers, texts and plain containers are returned as they are. Any other opcode is refused by name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_OPCODES = 20_000_000  # a training's payload with its optimizer has some hundred thousand
MOST_KEY_LENGTH = 16  # of a tuple that is a key: omegaconf keeps what a resolver answered by its arguments
MOST_KEY_DEPTH = 2  # a tuple of plain values, or of such tuples


class InertError(ValueError):
    """Not a pickle, or one that needs something unsupported."""


@dataclass(frozen=True)
class Name:
    """A global that the pickle names."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class PickledObject:
    """A recorded call of `of` with `args`; then `state` set on the result, and items put into it."""

    of: Any
    args: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    members: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Stored:
    """An object outside the pickle, by its id in the pickle."""

    identity: Any


class _Mark:
    """The start of a sequence of values on the stack."""


_MARK = _Mark()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_VALUES = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "UNICODE",
    "STRING", "BINSTRING", "SHORT_BINSTRING",
}  # fmt: skip
_NOTHING = {"PROTO", "FRAME"}


def read(data: bytes) -> Any:
    """The value that the pickle describes. Raises InertError."""
    machine = _Machine()
    try:
        for count, (opcode, arg, _) in enumerate(pickletools.genops(data)):
            if opcode.name == "STOP":
                return machine.pop()
            if count >= MOST_OPCODES:
                raise InertError(f"more than {MOST_OPCODES} opcodes")
            machine.do(opcode.name, arg)
    except (ValueError, TypeError, LookupError, UnicodeError, OverflowError) as error:
        raise InertError(f"not a readable pickle: {error}") from error
    raise InertError("the pickle does not end")


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.other: dict[str, Callable[[], object]] = {
            "MARK": lambda: self.stack.append(_MARK),
            "POP": self.stack.pop,
            "POP_MARK": self.since_mark,
            "DUP": lambda: self.stack.append(self.stack[-1]),
            "MEMOIZE": lambda: self.memo.__setitem__(len(self.memo), self.stack[-1]),
            "TUPLE": lambda: self.stack.append(tuple(self.since_mark())),
            "LIST": lambda: self.stack.append(self.since_mark()),
            "DICT": lambda: self.stack.append(_pairs(self.since_mark())),
            "FROZENSET": lambda: self.stack.append(frozenset(map(_key, self.since_mark()))),
            "TUPLE1": lambda: self.tuple(1),
            "TUPLE2": lambda: self.tuple(2),
            "TUPLE3": lambda: self.tuple(3),
            "APPEND": lambda: self.extend([self.pop()]),
            "APPENDS": lambda: self.extend(self.since_mark()),
            "ADDITEMS": lambda: self.extend(self.since_mark()),
            "SETITEM": lambda: self.update(self.pop_two()),
            "SETITEMS": lambda: self.update(self.since_mark()),
            "STACK_GLOBAL": self.stack_global,
            "REDUCE": self.make,
            "NEWOBJ": self.make,
            "NEWOBJ_EX": self.make_with_keywords,
            "BUILD": self.build,
            "BINPERSID": lambda: self.stack.append(Stored(self.pop())),
        }

    def do(self, name: str, arg: Any) -> None:
        """Raises InertError if the opcode is not supported."""
        if name in _VALUES:
            self.stack.append(arg)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[arg] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[arg])
        elif name == "GLOBAL":
            self.stack.append(Name(*arg.split(" ", 1)))
        elif name in self.other:
            self.other[name]()
        elif name not in _NOTHING:
            raise InertError(f"opcode {name} is not supported")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise InertError("a mark where a value belongs")
        return value

    def pop_two(self) -> list[Any]:
        second = self.pop()
        return [self.pop(), second]

    def since_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def tuple(self, count: int) -> None:
        self.stack.append(tuple([self.pop() for _ in range(count)][::-1]))

    def stack_global(self) -> None:
        module, name = self.pop_two()
        if not isinstance(module, str) or not isinstance(name, str):
            raise InertError("a global whose name is not text")
        self.stack.append(Name(module, name))

    def make(self) -> None:
        of, args = self.pop_two()
        self.stack.append(PickledObject(of, args))

    def make_with_keywords(self) -> None:
        keywords = self.pop()
        of, args = self.pop_two()
        self.stack.append(PickledObject(of, (args, keywords)))

    def build(self) -> None:
        """Set the state of a recorded object; a state for anything else is ignored."""
        state = self.pop()
        if isinstance(self.stack[-1], PickledObject):
            self.stack[-1].state = state

    def extend(self, values: list[Any]) -> None:
        onto = self.stack[-1]
        if isinstance(onto, PickledObject):
            onto.members += values
        elif isinstance(onto, list):
            onto += values
        elif isinstance(onto, set):
            onto.update(map(_key, values))
        else:
            raise InertError(f"values put into {type(onto).__name__}")

    def update(self, values: list[Any]) -> None:
        onto = self.stack[-1]
        into = onto.items if isinstance(onto, PickledObject) else onto
        if not isinstance(into, dict):
            raise InertError(f"items put into {type(onto).__name__}")
        into.update(_pairs(values))


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(map(_key, values[::2]), values[1::2], strict=True))


def _key(value: Any, depth: int = 0) -> Any:
    """Check that a value may be a key: plain, or a short tuple of plain values. Hashing a deeply nested tuple crashes
    the interpreter. Raises InertError."""
    if isinstance(value, tuple) and len(value) <= MOST_KEY_LENGTH and depth < MOST_KEY_DEPTH:
        return tuple(_key(part, depth + 1) for part in value)
    if not isinstance(value, str | bytes | int | float | Name | None):
        raise InertError(f"a key of type {type(value).__name__}")
    return value
