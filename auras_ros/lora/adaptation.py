"""What the adapters of a batch add, as the decoder calls it in each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import RowGroup, RowGroups, add_lora_
from auras_ros.kernels.lora_table import RULE, WayChooser
from auras_ros.lora.sites import Site
from auras_ros.lora.slots import FactorTable

Owner = int | None
"""The slot of a row's adapter; None: the base model's row."""


class Adaptation:
    """In the form of `fused_llama.Adapt`."""

    def __init__(
        self,
        rows: RowGroups,
        table: FactorTable,
        bounds: Mapping[str, tuple[int, ...]],
        chooser: WayChooser = RULE,
    ) -> None:
        self._rows, self._table, self._bounds, self._chooser = rows, table, bounds, chooser

    def __call__(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        if factors := self._table.get((layer, site)):
            add_lora_(y, x, self._rows, factors, self._bounds[site], self._chooser)


def site_bounds(sites: Sequence[Site]) -> dict[str, tuple[int, ...]]:
    return {site.name: site.bounds for site in sites}


def row_groups(owners: Sequence[Owner], counts: Sequence[int], merged: Owner) -> RowGroups | None:
    """Rows of requests, one after another: owners and how many rows each has. Rows of the merged adapter need nothing;
    all others get rid of it and add their own (VaLoRA 4.4.2). None: no row needs anything."""
    runs, begin = list[tuple[int, int, Owner]](), 0
    for owner, count in zip(owners, counts, strict=True):
        if runs and runs[-1][2] == owner:
            runs[-1] = (runs[-1][0], begin + count, owner)
        else:
            runs.append((begin, begin + count, owner))
        begin += count
    others = [run for run in runs if run[2] != merged]
    if not others:
        return None
    order = None
    if len({owner for _, _, owner in others}) < len(others):  # an adapter's rows are apart: put them together
        others.sort(key=lambda run: -1 if run[2] is None else run[2])
        order = torch.cat([torch.arange(first, end) for first, end, _ in others])
        others, begin = _together(others), 0
    groups = [RowGroup(owner, first, end) for first, end, owner in others if owner is not None]
    if merged is not None:
        groups = [RowGroup(merged, first, end, -1) for first, end in _adjoining(others)] + groups
    return RowGroups(groups, order)


def _together(runs: Sequence[tuple[int, int, Owner]]) -> list[tuple[int, int, Owner]]:
    """Runs sorted by owner -> one of each, by place in the order."""
    made, begin = list[tuple[int, int, Owner]](), 0
    for owner, own in groupby(runs, key=lambda run: run[2]):
        end = begin + sum(last - first for first, last, _ in own)
        made.append((begin, end, owner))
        begin = end
    return made


def _adjoining(runs: Sequence[tuple[int, int, Owner]]) -> list[tuple[int, int]]:
    """Runs without gaps between them, as one."""
    made = list[tuple[int, int]]()
    for first, end, _ in runs:
        if made and made[-1][1] == first:
            made[-1] = (made[-1][0], end)
        else:
            made.append((first, end))
    return made
