"""The training's configuration in a diffusion_policy checkpoint: plain values out of inert omegaconf nodes.

omegaconf keeps a container's children under `_content` and a leaf's value under `_val`; both are read as data. A value
that is not plain stays as it is, and the key that needs it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.inert import Name, PickledObject
from auras_ros.checkpoints.limits import WIDTH
from auras_ros.values import shown

DEEPEST, MOST, MOST_BITS = 40, 200_000, 1024
ORDERED = Name("collections", "OrderedDict")
RECONSTRUCTOR = Name("copyreg", "_reconstructor")
MISSING = object()


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts of the pickle's content; anything else as it is. A value that is used in several
    places is copied to each. Raises ValueError if that gets too deep or too large, or if a key has no text."""
    left = [MOST]

    def of(value: Any, depth: int) -> Any:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0:
            raise ValueError(f"nested deeper than {DEEPEST}, or more than {MOST} values")
        if isinstance(value, PickledObject):
            inner = _inner(value)
            return value if inner is MISSING else of(inner, depth + 1)
        if isinstance(value, Mapping):
            return {_short(key): of(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [of(each, depth + 1) for each in value]
        return value

    return of(value, 0)


def _short(key: Any) -> Any:
    """Python does not print integers of thousands of digits. Raises ValueError."""
    if isinstance(key, tuple):
        return tuple(map(_short, key))
    if isinstance(key, int) and key.bit_length() > MOST_BITS:
        raise ValueError(f"a key is a number of {key.bit_length()} bits")
    return key


def _inner(made: PickledObject) -> Any:
    """The content of a node, or MISSING if its class is unknown."""
    if made.of == ORDERED:
        return made.items
    state = made.state if isinstance(made.state, dict) else {}
    named = made.of  # the class; in the oldest protocols a helper, whose first argument is the class
    if named == RECONSTRUCTOR and isinstance(made.args, tuple) and made.args:
        named = made.args[0]
    if not isinstance(named, Name) or not named.module.startswith("omegaconf."):
        return MISSING
    return state.get("_content", state.get("_val", MISSING))


@dataclass(frozen=True)
class CkptConfig:
    """An object of the configuration. where: its place in the file, for errors, which are all CheckpointError."""

    path: Path
    where: str
    values: Mapping[str, Any]

    def object(self, key: str) -> CkptConfig:
        value = self.get(key)
        if not isinstance(value, Mapping):
            raise self.refused(key, value, "an object")
        return CkptConfig(self.path, f"{self.where}.{key}", value)

    def get(self, key: str, default: Any = MISSING, allowed: Collection[Any] | None = None) -> Any:
        """A value; one of `allowed`, if that is given."""
        value = self.values.get(key, default)
        if value is MISSING:
            raise CheckpointError(f"{self.path}: {self.where}: key '{key}' is missing")
        if isinstance(value, str) and "${" in value:
            raise CheckpointError(f"{self.path}: {self.where}.{key}: '{value}' was saved before it was resolved")
        if allowed is not None and not any(type(value) is type(one) and value == one for one in allowed):
            raise self.refused(key, value, " or ".join(map(repr, allowed)))
        return value

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise self.refused(key, value, "text")
        return value

    def count(self, key: str, default: Any = MISSING, least: int = 1, most: int = WIDTH) -> int:
        value = self.get(key, default)
        if type(value) is not int or value < least:
            raise self.refused(key, value, f"a whole number of at least {least}")
        if value > most:
            raise self.refused(key, value, f"{most} at most")
        return value

    def counts(self, key: str, length: int | None = None) -> list[int]:
        """A list of whole numbers above zero."""
        value = self.get(key)
        fits = isinstance(value, list) and value and all(type(one) is int and 0 < one <= WIDTH for one in value)
        if not fits or (length is not None and len(value) != length):
            raise self.refused(key, value, f"{length or 'some'} whole numbers above zero, {WIDTH} at most")
        found: list[int] = value
        return found

    def known(self, keys: Collection[str]) -> None:
        for key in sorted(map(str, self.values.keys() - set(keys))):
            raise CheckpointError(f"{self.path}: {self.where}: key '{key}' is unknown; what it changes is unsupported")

    def refused(self, key: str, value: Any, supported: str) -> CheckpointError:
        """The content of a record is never printed: it may be larger than any memory."""
        said = f"<{value.of}>" if isinstance(value, PickledObject) and isinstance(value.of, Name) else shown(value)
        return CheckpointError(f"{self.path}: {self.where}.{key}: {said} is not supported; expected {supported}")
