"""The factors of one layer's adapters, and copies of them in other forms that some ways multiply with.

A copy is made when a way first asks for it, and the last ones are kept: it costs the memory of the adapters in it, and
saves a product or a rearrangement for each of them at every call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_KEEPING = threading.Lock()
KEPT = 3  # copies of each adapter: those of a decode's set, of a prefill's, and of it alone
Form = TypeVar("Form")


class Factors(NamedTuple):
    """Of one adapter and layer. a: [parts * rank, in]; b: [out, rank], the scale in it, in whatever order in memory."""

    a: Tensor
    b: Tensor


MakeForm = Callable[[Sequence[Factors], int, Sequence[int]], Form]
"""The factors of some adapters, the layer's parts, the bounds of their outputs -> a form (`lora_forms`)."""


class LayerKind:
    """Layers for which one batch is treated alike: equal sizes, and adapters of equal ranks in the same slots. There
    is one object for each, so that finding it again is comparing addresses."""

    def __init__(self, width: int, out: int, parts: int, ranks: Mapping[int, int]) -> None:
        """ranks: by slot."""
        self.width, self.out, self.parts, self.ranks = width, out, parts, ranks


_KINDS: WeakValueDictionary[tuple[object, ...], LayerKind] = WeakValueDictionary()


def _kind(factors: Mapping[int, Factors]) -> LayerKind:
    ranks = {slot: each.b.shape[1] for slot, each in sorted(factors.items())}
    width, out, parts = 0, 0, 1
    for a, b in factors.values():
        width, out, parts = a.shape[1], len(b), len(a) // b.shape[1]
    key = (width, out, parts, tuple(ranks.items()))
    found = _KINDS.get(key)
    if found is None:
        found = _KINDS[key] = LayerKind(width, out, parts, ranks)
    return found


def _addresses(factors: Mapping[int, Factors]) -> Tensor | None:
    types = (torch.float32, torch.bfloat16)
    if not all(
        a.dtype == b.dtype and a.dtype in types and a.is_contiguous() and b.t().is_contiguous()
        for a, b in factors.values()
    ):
        return None
    found = torch.zeros(1 + max(factors, default=-1), 3, dtype=torch.int64)
    for slot, (a, b) in factors.items():
        found[slot] = torch.tensor([a.dtype == torch.bfloat16, a.data_ptr(), b.data_ptr()])
    return found


class FactorSet(MutableMapping[int, Factors]):
    """Slot -> factors. It may change while no forward uses the slot that does; all copies are dropped then. A forward
    in another thread, of other slots, goes on with what it has begun to read. addresses: int64 [slots, 3], whether a
    slot's factors are in bfloat16, and where A and B are in memory; None unless all are so or in float32, with A's
    inputs and B's outputs side by side."""

    def __init__(self, factors: Mapping[int, Factors] | None = None) -> None:
        self._change(dict(factors or {}))

    def _change(self, by_slot: Mapping[int, Factors]) -> None:
        self.by_slot, self.kind, self.addresses = by_slot, _kind(by_slot), _addresses(by_slot)
        self._copies: dict[tuple[object, tuple[int, ...]], Any] = {}

    def __getitem__(self, slot: int) -> Factors:
        return self.by_slot[slot]

    def __setitem__(self, slot: int, factors: Factors) -> None:
        self._change({**self.by_slot, slot: factors})

    def __delitem__(self, slot: int) -> None:
        left = dict(self.by_slot)
        del left[slot]
        self._change(left)

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_slot)

    def __len__(self) -> int:
        return len(self.by_slot)

    def drop_joined(self) -> bool:
        """Drops the copies of several adapters and not all, which another batch would not use; False if there are
        none."""
        joined = [key for key in self._copies if 1 < len(key[1]) < len(self.by_slot)]
        for key in joined:
            del self._copies[key]
        return bool(joined)

    def form(self, make: MakeForm[Form], slots: tuple[int, ...], bounds: Sequence[int]) -> Form:
        """These slots' factors, in their order, in a form. bounds: always the same of one layer."""
        copies, key = self._copies, (make, slots)
        found: Form | None = copies.get(key)
        if found is None:
            made = make([self.by_slot[slot] for slot in slots], self.kind.parts, bounds)
            with _KEEPING:  # prefill and decode may be in threads of their own
                room = KEPT * len(self.by_slot) - len(slots)
                while copies and sum(len(kept) for _, kept in copies) > room:
                    del copies[next(iter(copies))]
                found = copies[key] = made
        return found
