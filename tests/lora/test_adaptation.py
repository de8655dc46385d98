"""Which rows of a batch get which adapter's products.

Guards: a row that gets another's adapter, twice its own, or keeps the merged one; rows of one adapter that are apart.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.kernels.grouped_lora import Factors, add_lora_
from auras_ros.lora.adaptation import row_groups

OWNERS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(1, 4)), min_size=1, max_size=8)
BOUNDS = (0, 5, 12)


def factors() -> dict[int, Factors]:
    random = torch.Generator().manual_seed(0)
    ranks = {0: 1, 1: 3, 2: 2}  # slot 3 changes nothing in this layer
    return {
        slot: Factors(torch.randn(2 * rank, 7, generator=random), torch.randn(12, rank, generator=random))
        for slot, rank in ranks.items()
    }


def product(x: torch.Tensor, own: Factors | None) -> torch.Tensor:
    """Of one row, part by part."""
    if own is None:
        return torch.zeros(BOUNDS[-1])
    rank = own.b.shape[1]
    parts = [own.a[part * rank : (part + 1) * rank] @ x for part in range(2)]
    return torch.cat([own.b[low:high] @ inner for (low, high), inner in zip(pairwise(BOUNDS), parts, strict=True)])


@settings(max_examples=200)
@given(OWNERS, st.one_of(st.none(), st.integers(0, 3)))
def test_each_row_gets_its_own_adapter_and_loses_the_merged_one(
    runs: list[tuple[int | None, int]], merged: int | None
) -> None:
    owners, counts = [owner for owner, _ in runs], [count for _, count in runs]
    rows = [owner for owner, count in runs for _ in range(count)]
    x, y = torch.randn(len(rows), 7), torch.randn(len(rows), 12)
    known, found = factors(), y.clone()
    groups = row_groups(owners, counts, merged)
    if groups is not None:
        add_lora_(found, x, groups, known, BOUNDS)
    taken = None if merged is None else known.get(merged)
    for row, owner in enumerate(rows):
        wanted = y[row].clone()
        if owner != merged:
            wanted += product(x[row], None if owner is None else known.get(owner)) - product(x[row], taken)
        torch.testing.assert_close(found[row], wanted, rtol=1e-4, atol=1e-4)
    assert (groups is None) == all(owner == merged for owner in rows)
