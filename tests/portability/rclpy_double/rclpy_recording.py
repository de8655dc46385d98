"""What the double of rclpy writes down: every call, and every call that rclpy would not have taken.

A refusal is raised and also kept: code that swallows the error is found all the same.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import threading
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

C = TypeVar("C")


class RefusedError(TypeError):
    """A call that rclpy's signatures do not allow; the text names the call."""


@dataclass(frozen=True)
class Call:
    """One call: 'rclpy.node.Node.create_publisher' and its arguments by name, defaults left out."""

    name: str
    arguments: dict[str, Any]


calls: list[Call] = []
refused: list[str] = []
changed = threading.Condition()  # notified by everything that a test may wait for


def refuse(text: str) -> NoReturn:
    refused.append(text)
    raise RefusedError(text)


def recorded(function: Callable[..., Any], known_as: str = "") -> Callable[..., Any]:
    """Hold a function to its own signature: names and kinds by binding, types by its annotations."""
    name = known_as or f"{function.__module__}.{function.__qualname__}"
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not hints:  # late: the modules import each other
            hints.update(typing.get_type_hints(function))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            refuse(f"{name}: {error}")
        given = {key: value for key, value in bound.arguments.items() if key != "self"}
        for key, value in given.items():
            if key in hints and not fits(value, hints[key]):
                refuse(f"{name}: {key}: expected {show(hints[key])}, got {value!r}")
        with changed:
            calls.append(Call(name, given))
        return function(*args, **kwargs)

    return call


def strict(cls: type[C]) -> type[C]:
    """Record a class's public methods and its constructor, and name what it does not have.

    KNOWN_AS: what rclpy calls the class, where the double keeps it elsewhere.
    """
    known_as = vars(cls).get("KNOWN_AS", f"{cls.__module__}.{cls.__qualname__}")
    for name, member in list(vars(cls).items()):
        public = name == "__init__" or not name.startswith("_")
        if public and isinstance(member, types.FunctionType):
            setattr(cls, name, recorded(member, f"{known_as}.{name}".removesuffix(".__init__")))

    def missing(self: Any, name: str) -> NoReturn:
        text = f"{known_as} has no attribute {name!r}"
        if not name.startswith("__"):
            refused.append(text)
        raise AttributeError(text)

    cls.__getattr__ = missing  # type: ignore[attr-defined]
    return cls


def show(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type. What an annotation says of elements is checked for lists only."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if hint is None or hint is type(None):
        return value is None
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is list:
        return isinstance(value, list) and all(fits(one, arguments[0]) for one in value)
    if origin is type:
        return isinstance(value, type)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)
