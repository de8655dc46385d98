"""Which way or tiling is the quickest for a shape: a table that was searched on this device (VaLoRA 4.3.2).

A look-up takes the nearest shape of the table, by the logarithms of the sizes, and remembers it; a batch looks up once
for all layers of a kind. Where no table is, a rule decides.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from auras_ros.kernels.lora_batch import LoraShape, Way
from auras_ros.kernels.lora_ways import COMPILED, COMPILED_ROWS, WAYS, way_named

FEW_TOKENS, JOINT_WORK = 16, 1 << 16  # tokens, and numbers of all A, up to which the rule joins adapters
REMEMBERED = 1 << 16  # shapes whose way is remembered
MANY_ROWS = 32  # of an adapter in the mean, from which the rule takes the tiling for many
BLOCKS_WORK = 1 << 20  # multiplications of an adapter's A from which oneDNN's call costs less than it saves
Rule = Callable[[LoraShape], str]
"""Shape -> a way's name."""


class WayChooser(Protocol):
    """Chooses for `add_lora_`."""

    def choose(self, shape: LoraShape) -> Way: ...


@dataclass(frozen=True)
class FixedWay:
    """One way for every shape."""

    way: Way

    def choose(self, shape: LoraShape) -> Way:
        return self.way


class NearestShapes:
    """Shape -> the name that the nearest shape of the table has."""

    def __init__(self, entries: Mapping[LoraShape, str]) -> None:
        self.entries = dict(entries)
        self._tokens = sorted({shape.tokens for shape in entries})
        self._found: dict[LoraShape, str | None] = {}

    def name(self, shape: LoraShape) -> str | None:
        """None if no shape of the table has this phase and so many parts."""
        if not self._tokens:
            return None
        key = shape._replace(tokens=_nearest(self._tokens, shape.tokens))
        if key not in self._found:
            like = [each for each in self.entries if (each.phase, each.parts) == (key.phase, key.parts)]
            best = min(like, key=lambda each: _distance(each, key), default=None)
            self._found[key] = None if best is None else self.entries[best]
        return self._found[key]


def _nearest(sizes: Sequence[int], size: int) -> int:
    """By the ratio. sizes: ascending, not empty."""
    place = bisect_left(sizes, size)
    near = sizes[max(0, place - 1) : place + 1]
    return min(near, key=lambda each: max(each, size) / min(each, size))


def _distance(one: LoraShape, other: LoraShape) -> float:
    return sum(abs(math.log2(mine / its)) for mine, its in zip(one[1:], other[1:], strict=True))


def rule(shape: LoraShape) -> str:
    """Without a table."""
    if COMPILED not in WAYS:
        return rule_of_libraries(shape)
    return COMPILED_ROWS if shape.tokens >= MANY_ROWS * shape.adapters else COMPILED


def rule_of_libraries(shape: LoraShape) -> str:
    """Without our own kernels, which multiply rows in float32 alone."""
    if shape.tokens <= FEW_TOKENS and (shape.adapters == 1 or shape.adapters * shape.rank * shape.width < JOINT_WORK):
        return "joint"
    work = shape.tokens // shape.adapters * shape.rank * shape.width
    return "mixed" if work >= BLOCKS_WORK else "segmented"


class WayTable:
    """For a CPU."""

    def __init__(self, entries: Mapping[LoraShape, str], otherwise: Rule = rule) -> None:
        """otherwise: where the table has nothing like it. Raises ValueError for a way that there is not."""
        for name in sorted(set(entries.values())):
            way_named(name)
        self._shapes, self._otherwise = NearestShapes(entries), otherwise
        self._chosen: dict[LoraShape, Way] = {}

    def name(self, shape: LoraShape) -> str:
        """Of the way."""
        return self._shapes.name(shape) or self._otherwise(shape)

    def choose(self, shape: LoraShape) -> Way:
        found = self._chosen.get(shape)
        if found is None:
            if len(self._chosen) >= REMEMBERED:
                self._chosen.clear()
            found = self._chosen[shape] = WAYS[self.name(shape)]
        return found


RULE, LIBRARIES = WayTable({}), WayTable({}, rule_of_libraries)
