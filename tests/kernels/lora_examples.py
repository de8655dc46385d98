"""Batches, factors and the plain sum that they should give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import Factors, RowGroup, RowGroups


class Example(NamedTuple):
    """tokens: rows of the batch. order: None, or which row is at which place."""

    tokens: int
    width: int
    bounds: tuple[int, ...]
    ranks: Mapping[int, int]
    groups: tuple[tuple[int, ...], ...]
    order: tuple[int, ...] | None = None

    def rows(self) -> RowGroups:
        order = None if self.order is None else torch.tensor(self.order)
        return RowGroups([RowGroup(*each) for each in self.groups], order)

    def tensors(
        self, seed: int = 0, dtype: torch.dtype = torch.float32, beside: bool = False
    ) -> tuple[Tensor, Tensor, dict[int, Factors]]:
        """y, x, factors by slot. beside: B's outputs stand side by side in memory, as a slot on a CPU has them."""
        random, parts, out = torch.Generator().manual_seed(seed), len(self.bounds) - 1, self.bounds[-1]

        def numbers(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random).to(dtype)

        factors = {slot: Factors(numbers(parts * r, self.width), numbers(out, r)) for slot, r in self.ranks.items()}
        if beside:
            factors = {slot: Factors(a, b.t().contiguous().t()) for slot, (a, b) in factors.items()}
        return numbers(self.tokens, out), numbers(self.tokens, self.width), factors


def wanted(y: Tensor, x: Tensor, rows: RowGroups, factors: Mapping[int, Factors], bounds: Sequence[int]) -> Tensor:
    """Row by row, in float64."""
    made = y.double()
    order = range(len(x)) if rows.order is None else rows.order.tolist()
    for slot, begin, end, sign in rows.groups:
        if slot not in factors:
            continue
        a, b = (each.double() for each in factors[slot])
        rank = b.shape[1]
        for place in range(begin, end):
            row = order[place]
            for part, (low, high) in enumerate(pairwise(bounds)):
                inner = a[part * rank : (part + 1) * rank] @ x[row].double()
                made[row, low:high] += sign * (b[low:high] @ inner)
    return made


EXAMPLES = {
    "ragged, unaligned": Example(23, 37, (0, 19), {0: 3, 1: 8, 4: 5}, ((0, 0, 5), (1, 5, 6), (4, 9, 23))),
    "rank 1, two parts": Example(7, 20, (0, 11, 30), {2: 1, 3: 1}, ((3, 0, 3), (2, 3, 7))),
    "empty groups": Example(6, 16, (0, 8), {0: 2, 1: 4}, ((0, 0, 0), (1, 2, 5), (0, 5, 5))),
    "no group": Example(3, 16, (0, 8), {0: 2}, ()),
    "a slot without factors": Example(6, 16, (0, 8), {1: 4}, ((0, 0, 3), (1, 3, 6))),
    "one row": Example(1, 33, (0, 17, 21, 25), {0: 4}, ((0, 0, 1),)),
    "rows apart, three parts": Example(
        9, 24, (0, 12, 17, 22), {0: 4, 1: 2, 5: 7}, ((0, 0, 3), (5, 3, 4), (1, 4, 8)), (1, 8, 4, 0, 7, 2, 3, 6)
    ),
    "deLoRA": Example(8, 24, (0, 12, 18), {0: 4, 1: 3, 2: 2}, ((0, 1, 8, -1), (1, 1, 4), (2, 6, 8))),
    "deLoRA, rows apart": Example(
        7, 24, (0, 12), {0: 4, 1: 3}, ((0, 0, 5, -1), (1, 3, 5)), (6, 2, 4, 0, 5)
    ),
    "equal groups": Example(8, 32, (0, 16), {0: 4, 1: 2}, ((1, 2, 5), (0, 5, 8))),
    "one adapter twice": Example(8, 32, (0, 16), {0: 4, 1: 2}, ((1, 0, 2), (0, 2, 5), (1, 5, 8))),
}  # fmt: skip
