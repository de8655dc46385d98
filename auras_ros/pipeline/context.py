"""The public context: the double-buffered output of perception (Auras 4.3.1, rule 2 of docs/pipeline.md).

Perception puts and generation fetches; neither waits for the other. The addresses never change, so that captured stages
may read and write them. A slot is valid once it has the observation that its context was made from.
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
        """Set the observation behind the context that perception completes in this frame; None while the pipeline
        fills."""
        self._seen[frame % 2] = seen

    def fetch(self, frame: int, offset: int) -> ObservationOrigin | None:
        """The observation behind the context that generation reads in this frame; None if the slot is not valid yet."""
        return self._seen[(frame + offset) % 2]

    def clear(self) -> None:
        self._seen = [None, None]

    def forget(self, before_ns: int) -> None:
        """Invalidate contexts of older observations."""
        self._seen = [seen if seen is None or seen.mono_ns >= before_ns else None for seen in self._seen]


def as_tuple(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def store(into: tuple[Tensor, ...], value: Tensor | tuple[Tensor, ...]) -> None:
    """Copy to fixed addresses; a value that already is the target is not copied."""
    for target, part in zip(into, as_tuple(value), strict=True):
        if target is not part:
            target.copy_(part)
