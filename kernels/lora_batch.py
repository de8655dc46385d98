"""What the layers of one kind share within a forward: which rows belong to which adapter, in the forms that the ways
of `lora_ways` ask for. Each form is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from auras_ros.kernels.lora_factors import FactorSet, LayerKind

Form = TypeVar("Form")


class RowGroup(NamedTuple):
    """Places [begin, end) of the order have this adapter. sign: 1, or -1 where it is taken away."""

    slot: int
    begin: int
    end: int
    sign: int = 1


class LoraShape(NamedTuple):
    """What the quickest way depends on (VaLoRA 4.3.2). phase: `decode` if an adapter's rows are apart in the batch, so
    that they have to be brought together, else `prefill`. tokens: rows of all groups. rank: the largest. width, out: of
    the layer. parts: how many layers are joined in it. adapters: groups."""

    phase: str
    tokens: int
    rank: int
    width: int
    out: int
    parts: int
    adapters: int


class AdapterRows:
    """The groups with at least one row and an adapter in layers of this kind. order: as in `RowGroups`. tokens: rows of
    the batch, with those that no group has."""

    def __init__(
        self, groups: Sequence[RowGroup], order: Tensor | None, kind: LayerKind, tokens: int, dtype: torch.dtype
    ) -> None:
        self.groups = tuple(each for each in groups if each.end > each.begin and each.slot in kind.ranks)
        self.order, self.kind, self.tokens, self.dtype = order, kind, tokens, dtype
        self.slots = tuple(sorted({each.slot for each in self.groups}))
        self.chooser: object = None  # by whom `way` was chosen
        self.way: Way = _nothing
        self._forms: dict[object, Any] = {}

    @property
    def shape(self) -> LoraShape:
        """Of a batch with groups."""
        kind, phase = self.kind, "prefill" if self.order is None else "decode"
        rank, places = max(kind.ranks[slot] for slot in self.slots), sum(each.end - each.begin for each in self.groups)
        return LoraShape(phase, places, rank, kind.width, kind.out, kind.parts, len(self.groups))

    def form(self, make: Callable[[AdapterRows], Form]) -> Form:
        """What a way makes of the groups, made once."""
        found: Form | None = self._forms.get(make)
        if found is None:
            found = self._forms[make] = make(self)
        return found

    def keep_own_(self, inner: Tensor) -> Tensor:
        """Of products [T, parts * columns] with `JoinedFactors` those of a row with its own adapters, with their sign;
        all others are 0 (VaLoRA 5: the request-type mapping), whatever number they were."""
        others, signs = self._mask
        if others is not None:
            inner.masked_fill_(others, 0)
        if signs is not None:
            inner.mul_(signs)
        return inner

    @cached_property
    def _mask(self) -> tuple[Tensor | None, Tensor | None]:
        """Whose products are others', None: nobody's; and signs, None: all 1."""
        ranks = [self.kind.ranks[slot] for slot in self.slots]
        first = dict(zip(self.slots, np.cumsum([0, *ranks]).tolist(), strict=False))
        signs = np.zeros((self.tokens, self.kind.parts, sum(ranks)), np.float32)
        order = None if self.order is None else self.order.numpy()
        for slot, begin, end, sign in self.groups:
            rows = slice(begin, end) if order is None else order[begin:end]
            signs[rows, :, first[slot] : first[slot] + self.kind.ranks[slot]] += sign
        found = torch.from_numpy(signs).flatten(1)
        negative = bool((found < 0).any())
        return None if bool(found.all()) else found == 0, found.to(self.dtype) if negative else None

    @cached_property
    def run(self) -> tuple[int, int] | None:
        """(first row, rows of each group) if the groups have equally many rows, one group after another."""
        count = self.groups[0].end - self.groups[0].begin
        equal = all(each.end - each.begin == count and each.sign == 1 for each in self.groups)
        adjoin = all(one.end == other.begin for one, other in pairwise(self.groups))
        return (self.groups[0].begin, count) if self.order is None and equal and adjoin else None

    @cached_property
    def own_slots(self) -> tuple[int, ...]:
        """The slot of each group."""
        return tuple(each.slot for each in self.groups)

    @cached_property
    def signs(self) -> Tensor | None:
        """[groups, 1, 1]; None: all 1."""
        signs = [each.sign for each in self.groups]
        return None if set(signs) == {1} else torch.tensor(signs, dtype=self.dtype)[:, None, None]

    @cached_property
    def rows(self) -> Tensor:
        """int64 [n]: the rows of all groups, one group after another; a row of two groups is there twice."""
        places = torch.tensor(list(chain.from_iterable(range(each.begin, each.end) for each in self.groups)))
        return places if self.order is None else self.order.index_select(0, places)

    @cached_property
    def rows_by_group(self) -> tuple[Tensor, ...]:
        """`rows` of each group."""
        split: tuple[Tensor, ...] = self.rows.split([each.end - each.begin for each in self.groups])
        return split

    @cached_property
    def owners(self) -> Tensor:
        """int64 [n]: the group of each of `rows`."""
        sizes = torch.tensor([each.end - each.begin for each in self.groups])
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    @cached_property
    def places(self) -> Tensor:
        """int64 [n]: where the adapter of each of `rows` is among all that layers of this kind have."""
        found = {slot: place for place, slot in enumerate(self.kind.ranks)}
        return torch.tensor([found[slot] for slot in self.own_slots]).index_select(0, self.owners)

    @cached_property
    def padding(self) -> tuple[Tensor, Tensor]:
        """Rows [groups * most] with each group filled up by its last row, and the places [n] of `rows` in it."""
        sizes = [each.end - each.begin for each in self.groups]
        most, begin, filled, places = max(sizes), 0, list[int](), list[int]()
        for number, size in enumerate(sizes):
            filled += [*range(begin, begin + size), *[begin + size - 1] * (most - size)]
            places += range(number * most, number * most + size)
            begin += size
        return self.rows.index_select(0, torch.tensor(filled)), torch.tensor(places)


Way = Callable[[Tensor, Tensor, AdapterRows, FactorSet, Sequence[int]], None]
"""y [T, out] and x [T, in], the batch, the layer's factors, and the bounds of its parts."""


def _nothing(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    """Of a batch without groups."""
