"""The public context: the double-buffered output of perception (Auras 4.3.1, rule 2 of docs/pipeline.md).

Perception puts, generation fetches; nobody waits for the other. The addresses never change, so that captured stages
may read and write them. A context is valid with the observation that it was made from, and not before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from auras_ros.pipeline.request import ObservationOrigin


class PublicContext:
    """Two slots of tensors, each with the observation behind it. Frame f writes slot f mod 2."""

    def __init__(self, like: tuple[Tensor, ...]) -> None:
        self.slots = tuple(tuple(torch.zeros_like(part) for part in like) for _ in range(2))
        self._seen: list[ObservationOrigin | None] = [None, None]

    def put(self, frame: int, seen: ObservationOrigin | None) -> None:
        """What perception completes in this frame; None while the pipeline fills."""
        self._seen[frame % 2] = seen

    def fetch(self, frame: int, offset: int) -> ObservationOrigin | None:
        """What generation of this frame sees; None where there is nothing valid yet."""
        return self._seen[(frame + offset) % 2]

    def clear(self) -> None:
        self._seen = [None, None]

    def forget(self, before_ns: int) -> None:
        """Contexts of observations that are older are valid no more."""
        self._seen = [seen if seen is None or seen.mono_ns >= before_ns else None for seen in self._seen]

    def take(self, other: PublicContext, rows: Tensor, environments: int) -> None:
        """Copy the state of these environments from another context, which has `environments` of them."""
        for mine, theirs in zip(self.slots, other.slots, strict=True):
            store(mine, tuple(of_environments(part, rows, environments) for part in theirs))
        self._seen = [None if seen is None else seen.keep(rows) for seen in other._seen]


def of_environments(part: Tensor, rows: Tensor, environments: int) -> Tensor:
    """These environments of what perception hands on. Between its blocks an environment may have several rows, one
    after the other: a picture each of its history and its cameras. Raises ValueError where it cannot be told apart."""
    each, rest = divmod(len(part), environments)
    if rest or not each:
        raise ValueError(f"perception returned {len(part)} rows for {environments} environments, not a multiple of them")
    kept: Tensor = part.unflatten(0, (environments, each))[rows].flatten(0, 1)
    return kept


def as_tuple(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def store(into: tuple[Tensor, ...], value: Tensor | tuple[Tensor, ...]) -> None:
    """Copy to fixed addresses; a value that is there already stays."""
    for target, part in zip(into, as_tuple(value), strict=True):
        if target is not part:
            target.copy_(part)
