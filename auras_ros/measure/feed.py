"""Observations that are always available: random values, newer at every call.

Throughput is measured as in Auras section 6: no camera limits it, and no frame sees the same observation twice. Zeros
are never used, because they would be faster than real pictures.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.family import LoadedPolicy

DIFFERENT = 8  # number of observations that are used in turn


class Feed:
    """Returns `examples` in turn: pairs of images [E, history, cameras, 3, h, w] and state [E, history, D].

    Every call returns a later origin than the previous one. One caller at a time.
    """

    def __init__(self, examples: Iterable[tuple[Tensor, Tensor]]) -> None:
        self.examples = tuple(examples)
        self._served = self._newest_ns = 0

    def __call__(self, now_ns: int) -> Latched:
        images, state = self.examples[self._served % len(self.examples)]
        self._served += 1
        self._newest_ns = max(self._newest_ns + 1, now_ns)
        return Latched(images, state, ObservationOrigin(self._newest_ns, self._newest_ns))


def random_feed(policy: LoadedPolicy, seed: int, different: int = DIFFERENT) -> Feed:
    """Preprocessed observations of a registered policy's shapes for one environment, on the host."""
    random = torch.Generator().manual_seed(seed)
    return Feed([policy.example(1, random) for _ in range(different)])
