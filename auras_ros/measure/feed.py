"""Observations that are always at hand: random values, newer at every look.

Throughput is meant as in Auras section 6: no camera limits it, and no frame sees the same observation twice. Zeros
would be quicker than real pictures, so they are never used.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.family import LoadedPolicy

DIFFERENT = 8  # observations that take turns: enough that none is the one before


class Feed:
    """Gives `examples` in turn: pairs of images [E, history, cameras, 3, h, w] and state [E, history, D].

    Every look has a later origin than the one before. One caller at a time.
    """

    def __init__(self, examples: Iterable[tuple[Tensor, Tensor]]) -> None:
        self._examples = tuple(examples)
        self._served = self._newest_ns = 0

    def __call__(self, now_ns: int) -> Latched:
        images, state = self._examples[self._served % len(self._examples)]
        self._served += 1
        self._newest_ns = max(self._newest_ns + 1, now_ns)
        return Latched(images, state, ObservationOrigin(self._newest_ns, self._newest_ns))


def random_feed(policy: LoadedPolicy, seed: int, different: int = DIFFERENT) -> Feed:
    """Observations of a registered policy's shapes for one environment, on the host, as preprocessing leaves them."""
    random = torch.Generator().manual_seed(seed)
    return Feed([policy.example(1, random) for _ in range(different)])
