"""One adapter merged into the decoder's weights: W = golden + B A, so that its rows cost nothing more (VaLoRA 4.4.1).

Exact: the weights of every mode are computed from a golden copy, so a thousand switches leave what one leaves. Without
the copy the product is added and subtracted, which takes half of the memory and drifts by rounding. Either way the sum
is written where the weights are, in the form in which they multiply: nothing is allocated, moved or packed anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import Factors
from auras_ros.lora.sites import Site
from auras_ros.lora.slots import Resident, finish
from auras_ros.models.fused_llama import HEAD, FusedLlama
from auras_ros.models.linear import AnyLinear, WeightBlocks, weight_blocks


class _MergedLinear:
    """One joined layer: its weight's forms, and the golden copies of those."""

    def __init__(self, linear: AnyLinear, site: Site, exact: bool) -> None:
        self._forms, self._bounds = weight_blocks(linear), site.bounds
        self._golden = [form.data.clone() for form in self._forms] if exact else None
        self._merged: Factors | None = None

    def restore(self) -> None:
        """The base model's, whatever a change has left."""
        for form, golden in zip(self._forms, self._golden or [], strict=False):
            form.data.copy_(golden)
        self._merged = None

    def switch(self, factors: Factors | None) -> None:
        """To this adapter's weights, or the base model's."""
        if factors is None and self._merged is None:
            return
        for place, form in enumerate(self._forms):
            base = form.data if self._golden is None else self._golden[place]
            if self._golden is None and self._merged is not None:
                _add(form, base, self._merged, self._bounds, -1)
            if factors is not None:
                _add(form, base, factors, self._bounds, 1)
            elif self._golden is not None:
                form.data.copy_(base)
        self._merged = factors


def _add(form: WeightBlocks, base: Tensor, factors: Factors, bounds: Sequence[int], sign: int) -> None:
    """form = base + sign * B A, block by block while a block is in the cache."""
    rank = factors.b.shape[1]
    for part, (low, high) in enumerate(pairwise(bounds)):
        form.add_(base, factors.a[part * rank : (part + 1) * rank], factors.b[low:high], low, sign)


class MergedWeights:
    """Which adapter is in the weights. Whoever switches sees to it that no forward of the decoder runs; two that are
    about to begin may both switch, to the same one: the second waits until the first has. exact: from a golden copy.
    refusal: why nothing can be merged into these weights; empty if it can."""

    def __init__(self, decoder: FusedLlama, sites: Sequence[Site], head: Site | None, exact: bool = True) -> None:
        self._decoder, self._exact = decoder, exact
        self._sites = {site.name: site for site in (*sites, *([] if head is None else [head]))}
        self._linears: dict[tuple[int, str], _MergedLinear] = {}
        self.merged: Resident | None = None
        self.took_ns = 0  # of the last change
        self._changing = threading.Lock()
        self.refusal = ""
        self._broken = ""  # what the weights are, if they are no model's
        forms = [*decoder.layers[0].linears().values(), *([] if head is None else [decoder.head])]
        try:
            for each in forms:  # all layers have the same
                weight_blocks(each)
        except ValueError as error:
            self.refusal = str(error)

    def switch(self, resident: Resident | None) -> None:
        """Its layers get this adapter, all others what the base model has. Raises ValueError for weights in 8 bits, and
        RuntimeError ever after a change that failed half-way without a golden copy."""
        with self._changing:
            if self._broken:
                raise RuntimeError(self._broken)
            if resident is self.merged:
                return
            try:
                self._change(resident)
            except Exception as error:  # a change that is half made would be in everybody's rows
                self.refusal = f"a change of the weights failed: {error}"
                if not self._exact:
                    self._broken = f"{self.refusal}; without a copy of them (lora_exact) they cannot be restored"
                self.merged = None
                for linear in self._linears.values():
                    linear.restore()
                raise

    def _change(self, resident: Resident | None) -> None:
        began_ns = time.perf_counter_ns()
        wanted: Mapping[tuple[int, str], Factors] = {} if resident is None else resident.decoder
        for place in wanted:
            if place not in self._linears:
                self._linears[place] = _MergedLinear(self._linear(*place), self._sites[place[1]], self._exact)
        for place, linear in self._linears.items():
            linear.switch(wanted.get(place))
        finish(self._decoder.device)
        self.merged, self.took_ns = resident, time.perf_counter_ns() - began_ns

    def _linear(self, layer: int, site: str) -> AnyLinear:
        return self._decoder.head if layer == HEAD else self._decoder.layers[layer].linears()[site]


def drift(weights: Tensor, golden: Tensor) -> float:
    """The largest difference over the largest weight."""
    return float((weights - golden).abs().max() / golden.abs().max().clamp_min(torch.finfo(golden.dtype).tiny))
