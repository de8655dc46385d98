"""What the adapters of a batch add on a GPU: Triton's kernels, which find groups and factors in tensors that keep their
addresses, so that a captured decode adds what its batch asks for when it is replayed (VaLoRA 4.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from auras_ros.kernels.grouped_lora import RowGroups
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.lora.sites import Site
from auras_ros.lora.slots import AdapterSlots

Place = tuple[int, str]
"""Layer and site."""


class LoraKernels(Protocol):
    """`TritonLora`."""

    @property
    def index(self) -> GroupIndex: ...

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers) -> None: ...


MakeKernels = Callable[[GroupIndex, int, int], LoraKernels]
"""The index, the largest rank, the most parts of a layer."""


class KernelAdaptation:
    """In the form of `fused_llama.Adapt`."""

    def __init__(self, kernels: LoraKernels, layers: Mapping[Place, LayerPointers]) -> None:
        self.kernels, self._layers = kernels, layers

    def __call__(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        pointers = self._layers.get((layer, site))
        if pointers is not None:  # a tied head has none
            self.kernels.add_(y, x, pointers)


class KernelAdapters:
    """The factors of all slots as the kernels read them, and adaptations of batches. Any thread."""

    def __init__(self, slots: AdapterSlots, sites: Mapping[Place, Site], make: MakeKernels) -> None:
        """sites: of every layer."""
        self._slots, self._make = slots, make
        self._layers = {
            place: LayerPointers(slots.count, site.bounds, slots.device, slots.aligned(site))
            for place, site in sites.items()
        }
        self._parts = max(each.parts for each in self._layers.values())
        self._kept: dict[int, KernelAdaptation] = {}
        self._lock = threading.Lock()

    def adaptation(self, rows: RowGroups, tokens: int, keep: bool) -> KernelAdaptation:
        """tokens: rows of the batch, those included that fill it up. keep: the same one for every batch of this size,
        whose kernels are in a captured stage; a batch at a time then."""
        with self._lock:
            for place in self._slots.taken_changes():
                placed = self._slots.table.get(place)
                self._layers[place].fill({} if placed is None else placed.by_slot)
            made = self._kept.get(tokens) if keep else None
            if made is None:
                index = GroupIndex(tokens, self._slots.count + 1, self._slots.device, subtracts=True)
                made = KernelAdaptation(self._make(index, self._slots.placed_rank, self._parts), self._layers)
                if keep:
                    self._kept[tokens] = made
        made.kernels.index.fill(rows, tokens)
        return made
