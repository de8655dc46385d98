"""Typed reading of a published JSON file: every error names the key and its place; `finish` refuses unknown keys."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from auras_ros.spelling import hint
from auras_ros.values import shown

LARGEST = 1e12  # of a number that is not a size: above every published base of rotary frequencies


class ModelConfigError(ValueError):
    """A configuration that cannot be built; the text names the key."""


class ConfigReader:
    """One mapping. A key that is missing or null has its default."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise ModelConfigError(f"{where}: is not a mapping")
        self.values, self.where = values, where
        self._read: set[str] = set()

    def integer(self, key: str, default: int | None = None, least: int | None = None, most: int | None = None) -> int:
        """A whole number; without a default the key must be there."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"{shown(value)} is not a whole number")
        if (least is not None and value < least) or (most is not None and value > most):
            raise self.error(key, f"{shown(value)} is not from {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None, least: float = 0.0) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, f"{shown(value)} is not a number")
        if not least <= value <= LARGEST:  # refuses NaN too
            raise self.error(key, f"is not a number from {least:g} to {LARGEST:g}")
        return float(value)

    def numbers(self, key: str, count: int, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of `count` finite numbers."""
        value = self.get(key, list(default))
        fits = isinstance(value, list) and len(value) == count
        if not fits or not all(type(each) in (int, float) and abs(each) <= LARGEST for each in value):
            raise self.error(key, f"{shown(value)} is not a list of {count} numbers")
        return tuple(float(each) for each in value)

    def integers(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A list of whole numbers from 0."""
        value = self.get(key, list(default))
        if not isinstance(value, list) or any(type(each) is not int or each < 0 for each in value):
            raise self.error(key, f"{shown(value)} is not a list of whole numbers")
        return tuple(value)

    def pair(self, key: str, kind: type[Any]) -> list[Any]:
        """A list of two values of this type."""
        value = self.get(key)
        if not isinstance(value, list | tuple) or len(value) != 2 or any(type(each) is not kind for each in value):
            name = {str: "names", int: "whole numbers"}[kind]
            raise self.error(key, f"{shown(value)} is not a list of two {name}, one for each encoder")
        return list(value)

    def only(self, key: str, *supported: Any) -> Any:
        """The key's value, which must be supported; a missing key counts as the first supported value."""
        value = self.get(key, supported[0])
        if not any(value == each and type(value) is type(each) for each in supported):
            raise self.error(key, f"{shown(value)} is not supported; expected {', '.join(map(repr, supported))}")
        return value

    def inner(self, key: str) -> ConfigReader:
        """The mapping under a key; an empty one if it is missing."""
        value = self.get(key, {})
        return ConfigReader(value, f"{self.where}.{key}")

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def error(self, key: str, text: str) -> ModelConfigError:
        return ModelConfigError(f"{self.where}.{key}: {text}")

    def finish(self, ignored: Set[str]) -> None:
        """Refuse all keys that have a value, that nobody has read and that inference may not ignore."""
        unknown = [
            str(key)
            for key, value in self.values.items()
            if value is not None and key not in self._read and key not in ignored
        ]
        if unknown:
            raise ModelConfigError(", and ".join(str(self._unknown(key)) for key in unknown))

    def _unknown(self, key: str) -> ModelConfigError:
        return self.error(key, f"is unknown{hint(key, sorted(self._read))}")
