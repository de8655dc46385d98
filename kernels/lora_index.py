"""What the Triton kernels read of a batch and of a layer, in tensors that keep their addresses: a CUDA graph that was
captured with them computes with what they have when it is replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import Factors, RowGroups


class GroupLists(NamedTuple):
    """int32 [groups, filled up to a power of two]: places [begin, end) of the order, and the slot. Empty: 0, 0."""

    begins: Tensor
    ends: Tensor
    slots: Tensor


class GroupIndex:
    """The groups of one batch, in two lists: those that are subtracted come first, then those that are added, so that
    no two programs add to one row."""

    def __init__(self, tokens: int, groups: int, device: torch.device, subtracts: bool = False) -> None:
        """tokens, groups: the most of each sign. subtracts: whether there may be groups of sign -1 (deLoRA)."""
        self.tokens, self.groups, self.device = tokens, groups, device
        self.padded = 1 << max(1, (groups - 1).bit_length())
        self.signs = (-1, 1) if subtracts else (1,)
        self.order = torch.zeros(tokens, dtype=torch.int32, device=device)
        self._lists = torch.zeros(len(self.signs), 3, self.padded, dtype=torch.int32, device=device)

    def of(self, sign: int) -> GroupLists:
        return GroupLists(*self._lists[self.signs.index(sign)])

    def fill(self, rows: RowGroups, tokens: int) -> None:
        """tokens: rows of the batch. A slot without an adapter adds nothing. Raises ValueError for more than there is
        room for."""
        lists = torch.zeros(self._lists.shape, dtype=torch.int32)
        for number, sign in enumerate(self.signs):
            own = [each for each in rows.groups if each.sign == sign]
            if len(own) > self.groups:
                raise ValueError(f"lora: {len(own)} groups, room for {self.groups}")
            for place, each in enumerate(own):
                lists[number, :, place] = torch.tensor([each.begin, each.end, each.slot])
        if any(each.sign not in self.signs for each in rows.groups):
            raise ValueError("lora: a group is subtracted, the index has none such")
        order = torch.arange(tokens) if rows.order is None else rows.order
        if max(tokens, len(order)) > self.tokens:
            raise ValueError(f"lora: {max(tokens, len(order))} rows, room for {self.tokens}")
        self._lists.copy_(lists)
        self.order[: len(order)].copy_(order)


class LayerPointers:
    """Where the factors of one layer's adapters are, by slot. A slot without any has rank 0."""

    def __init__(self, slots: int, bounds: Sequence[int], device: torch.device, aligned: bool = False) -> None:
        """aligned: whether all factors and their rows begin at multiples of 16 bytes, so that loads are wider."""
        self.sizes = [high - low for low, high in pairwise(bounds)]
        self.parts, self.aligned = len(self.sizes), aligned
        self.bounds = torch.tensor(list(bounds), dtype=torch.int32, device=device)
        self.a = torch.zeros(slots, dtype=torch.int64, device=device)
        self.b = torch.zeros(slots, dtype=torch.int64, device=device)
        self.ranks = torch.zeros(slots, dtype=torch.int32, device=device)
        self._held: list[Factors] = []

    def fill(self, factors: Mapping[int, Factors]) -> None:
        """factors: of no set that another thread may change meanwhile (`FactorSet.by_slot`). They must stay where they
        are as long as the pointers are used. Raises ValueError for factors with gaps, or that are not aligned as was
        said."""
        if not all(tensor.is_contiguous() for each in factors.values() for tensor in each):
            raise ValueError("lora: factors with gaps between their rows")
        if self.aligned and not all(_aligned(tensor) for each in factors.values() for tensor in each):
            raise ValueError("lora: factors that do not begin at multiples of 16 bytes")
        a, b, ranks = (torch.zeros(len(self.a), dtype=torch.int64) for _ in range(3))
        for slot, each in factors.items():
            a[slot], b[slot], ranks[slot] = each.a.data_ptr(), each.b.data_ptr(), each.b.shape[1]
        self._held = list(factors.values())
        for mine, its in ((self.a, a), (self.b, b), (self.ranks, ranks)):
            mine.copy_(its)


def _aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % 16 == 0 and tensor.stride(0) * tensor.element_size() % 16 == 0
