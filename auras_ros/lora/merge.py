"""One adapter merged into the decoder's weights: W = base + B A, so that its rows cost nothing more (VaLoRA 4.4.1).

Exact: the sum is a copy of the layers that the adapter changes, always computed from the base model's weights, which
nothing writes. Both stay in memory, so that any forward can have one or the other at no cost; with several copies it
has the choice among as many adapters' sums. Without a copy the product is added to the weights and subtracted again,
which drifts by rounding. Either way the sum is written where it multiplies, in that form: nothing is allocated, moved
or packed anew, but what `reserve` has not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import Factors
from auras_ros.lora.sites import Site
from auras_ros.lora.slots import Resident, finish
from auras_ros.models.fused_llama import FusedLlama
from auras_ros.models.linear import AnyLinear, duplicate, weight_blocks

LOGGER = logging.getLogger(__name__)
Place = tuple[int, str]
"""Layer and site."""


class _MergedLinear:
    """One joined layer. base: the model's; merged: the one that has sums, which may be the same."""

    def __init__(self, linear: AnyLinear, site: Site, exact: bool) -> None:
        self.base, self.merged = linear, duplicate(linear) if exact else linear
        self._forms = list(zip(weight_blocks(self.base), weight_blocks(self.merged), strict=True))
        self._bounds = site.bounds

    def add(self, factors: Factors, sign: int = 1) -> None:
        """merged = base + sign * B A, block by block while a block is in the cache."""
        rank = factors.b.shape[1]
        for base, form in self._forms:
            for part, (low, high) in enumerate(pairwise(self._bounds)):
                a = factors.a[part * rank : (part + 1) * rank]
                form.add_(base.data, a, factors.b[low:high], low, sign)


class MergedWeights:
    """Which adapter is in the weights. Whoever switches sees to it that no forward of the decoder runs; two that are
    about to begin may both switch, to the same one: the second waits until the first has. copies: adapters whose sums
    are kept beside the base model's weights; one more takes the place of the one that was used longest ago. 0: none
    are, products are added to the weights and taken away again, from a copy of the factors. refusal: why nothing can be
    merged into these weights; empty if it can."""

    def __init__(self, decoder: FusedLlama, sites: Sequence[Site], head: Site | None, copies: int = 1) -> None:
        self._decoder, self.exact, self.copies = decoder, copies > 0, max(copies, 1)
        self._sites = {site.name: site for site in (*sites, *([] if head is None else [head]))}
        self._base: dict[Place, AnyLinear] = {}  # of the places that any adapter has changed
        self._linears: list[dict[Place, _MergedLinear]] = [{} for _ in range(self.copies)]
        self._summed: dict[Resident, int] = {}  # whose sums there are, and in which copy; the last used one last
        self.merged: Resident | None = None  # whose sums are used
        self._added: Mapping[Place, Factors] = {}  # without a copy: what is in the weights; its slot may be another's
        self.replaced: frozenset[tuple[int, Place]] = frozenset()  # of which copy layers are used, and where
        self.took_ns = 0  # of the last time that sums were computed
        self._changing = threading.Lock()
        self.refusal = ""
        self._broken = ""  # what the weights are, if they are no model's
        forms = [*decoder.layers[0].linears().values(), *([] if head is None else [decoder.head])]
        try:
            for each in forms:  # all layers have the same
                weight_blocks(each)
        except ValueError as error:
            self.refusal = str(error)

    def reserve(self) -> None:
        """Allocates all copies of the decoder's layers, so that no forward has to: half a second for a quarter of a
        gigabyte that the system has to find first. The head's is allocated for an adapter that changes it."""
        for copy in range(self.copies if self.exact and not self.refusal else 0):
            self._reserve(copy, [(layer.index, each) for layer in self._decoder.layers for each in layer.linears()])

    def switch(self, resident: Resident | None) -> None:
        """Its layers get this adapter, all others what the base model has. Raises ValueError for weights in 8 bits, and
        RuntimeError ever after a change that failed half-way without a second copy."""
        with self._changing:
            if self._broken:
                raise RuntimeError(self._broken)
            if resident is self.merged:
                return
            try:
                if resident not in self._summed and (resident is not None or not self.exact):
                    self._sum(resident)
                self._use(resident)
            except Exception as error:  # a change that is half made would be in everybody's rows
                self.refusal = f"a change of the weights failed: {error}"
                LOGGER.warning("no adapter is merged any more: %s", self.refusal)
                if not self.exact:
                    self._broken = f"{self.refusal}; without a copy of them (lora_exact) they cannot be restored"
                self._use(None)
                raise

    def _sum(self, resident: Resident | None) -> None:
        if len(self._summed) == self.copies:
            oldest = next(iter(self._summed))
            summed = self._linears[self._summed.pop(oldest)]
            if not self.exact:
                for place, factors in self._added.items():
                    summed[place].add(factors, -1)
        copy = min(set(range(self.copies)).difference(self._summed.values()))
        self._reserve(copy, _factors(resident))
        began_ns = time.perf_counter_ns()
        for place, factors in _factors(resident).items():
            self._linears[copy][place].add(factors)
        if not self.exact:
            self._added = {place: Factors(*(each.clone() for each in own)) for place, own in _factors(resident).items()}
        finish(self._decoder.device)
        if resident is not None:
            self._summed[resident] = copy
        self.took_ns = time.perf_counter_ns() - began_ns

    def _reserve(self, copy: int, places: Iterable[Place]) -> None:
        for place in places:
            base = self._base.setdefault(place, self._decoder.linear(*place))
            if place not in self._linears[copy]:
                self._linears[copy][place] = _MergedLinear(base, self._sites[place[1]], self.exact)

    def _use(self, resident: Resident | None) -> None:
        copy = -1
        if resident is not None:
            copy = self._summed[resident] = self._summed.pop(resident)  # the last one
        if self.exact:
            used = frozenset(_factors(resident))
            for place, base in self._base.items():
                self._decoder.replace(*place, self._linears[copy][place].merged if place in used else base)
            self.replaced = frozenset((copy, place) for place in used)
        self.merged = resident


def _factors(resident: Resident | None) -> Mapping[Place, Factors]:
    return {} if resident is None else resident.decoder


def drift(weights: Tensor, golden: Tensor) -> float:
    """The largest difference over the largest weight."""
    return float((weights - golden).abs().max() / golden.abs().max().clamp_min(torch.finfo(golden.dtype).tiny))
