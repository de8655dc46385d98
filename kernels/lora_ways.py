"""The ways to add low-rank products on a CPU: the same result, quickest for other shapes (VaLoRA 4.3 on a CPU).

With few rows a call of an operator costs more than its arithmetic, so that few large products win; with many rows
multiplying what a mask then removes, or copying factors, costs more than the calls. Some ways multiply with copies of
the factors (`lora_forms`), which are kept from call to call.

segmented      for each group its two products, on slices of the batch
blocked        as segmented, multiplied by oneDNN, which arranges the factors in its blocks at each call
packed         the same with copies that are in blocks already
mixed          the same with A in blocks and B as it stands, to which MKL adds
adapter        for each group its rows brought together, two products, added to where the rows are
padded         one batched product over the groups, filled up to the longest, with joined copies
gathered       one batched product over the rows, with each row's factors, of copies of all that are in memory
joint          all rows times all adapters, a mask for whose is whose, and back: two products in all, joined copies
joint-packed   the same with joined copies in oneDNN's blocks
joint-mixed    the same with A in blocks and B as it stands
compiled       by our own kernels: one launch for all groups and parts (`lora_compiled`); where Numba is installed
compiled-rows  the same in another tiling, for many rows of a group
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.kernels import NUMBA
from auras_ros.kernels.lora_batch import AdapterRows, RowGroup, Way
from auras_ros.kernels.lora_factors import FactorSet
from auras_ros.kernels.lora_forms import join, join_mixed, join_packed, linear, pad

GroupProduct = Callable[[Tensor, Tensor, RowGroup, FactorSet, Sequence[int]], None]
FILLED = 16
COMPILED, COMPILED_ROWS = "compiled", "compiled-rows"


class CpuTiling(NamedTuple):
    """Of how our kernels expand: rows of a group that meet a piece of B before the next ones do, and the piece's
    outputs and ranks."""

    rows: int
    columns: int
    ranks: int


# Factors that are used once come from memory, where long pieces of a few ranks are read quickest; those of many rows
# come from the cache, where all ranks at once mean that outputs are written once.
TILINGS = {COMPILED: CpuTiling(24, 2048, 16), COMPILED_ROWS: CpuTiling(192, 64, 1 << 20)}


def _product(y: Tensor, x: Tensor, group: RowGroup, factors: FactorSet, bounds: Sequence[int]) -> None:
    """y[rows] += sign * (x[rows] A^T) B^T, for rows of one group."""
    _add_product(y[group.begin : group.end], x[group.begin : group.end], group, factors, bounds)


def _add_product(y: Tensor, x: Tensor, group: RowGroup, factors: FactorSet, bounds: Sequence[int]) -> None:
    a, b = factors.by_slot[group.slot]
    inner = F.linear(x, a)
    if len(bounds) == 2:
        y.addmm_(inner, b.t(), alpha=group.sign)
        return
    rank = b.shape[1]
    for part, (low, high) in enumerate(pairwise(bounds)):
        y[:, low:high].addmm_(inner[:, part * rank : (part + 1) * rank], b[low:high].t(), alpha=group.sign)


def _tiled(y: Tensor, x: Tensor, group: RowGroup, factors: FactorSet, bounds: Sequence[int], tile: int) -> None:
    for begin in range(group.begin, group.end, tile):
        rows = slice(begin, min(begin + tile, group.end))
        _add_product(y[rows], x[rows], group, factors, bounds)


def _window(group: RowGroup, tokens: int) -> tuple[slice, slice]:
    """Rows of the batch around a group's, a multiple of FILLED if the batch has as many, and the group's among them:
    oneDNN makes a kernel for every number of rows that it meets, which takes longer than some rows more."""
    count = group.end - group.begin
    size = min(tokens, -(-count // FILLED) * FILLED)
    low = min(group.begin, tokens - size)
    return slice(low, low + size), slice(group.begin - low, group.begin - low + count)


def _blocked(y: Tensor, x: Tensor, group: RowGroup, factors: FactorSet, bounds: Sequence[int]) -> None:
    (a, b), (around, own) = factors.by_slot[group.slot], _window(group, len(x))
    for inner, (low, high) in zip(linear(x[around], a).split(b.shape[1], 1), pairwise(bounds), strict=True):
        y[group.begin : group.end, low:high].add_(linear(inner, b[low:high].contiguous())[own], alpha=group.sign)


def _packed(y: Tensor, x: Tensor, group: RowGroup, factors: FactorSet, bounds: Sequence[int]) -> None:
    (a, b, rank), (around, own) = factors.form(join_packed, (group.slot,), bounds), _window(group, len(x))
    for part, inner, (low, high) in zip(b, linear(x[around], a).split(rank, 1), pairwise(bounds), strict=True):
        y[group.begin : group.end, low:high].add_(linear(inner, part)[own], alpha=group.sign)


def _mixed(y: Tensor, x: Tensor, group: RowGroup, factors: FactorSet, bounds: Sequence[int]) -> None:
    (a, b, rank), (around, own) = factors.form(join_mixed, (group.slot,), bounds), _window(group, len(x))
    for part, inner, (low, high) in zip(b, linear(x[around], a)[own].split(rank, 1), pairwise(bounds), strict=True):
        y[group.begin : group.end, low:high].addmm_(inner, part, alpha=group.sign)


def _segmented(
    y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int], product: GroupProduct
) -> None:
    own = y
    if batch.order is not None:
        own, x = y.index_select(0, batch.order), x.index_select(0, batch.order)
    for group in batch.groups:
        product(own, x, group, factors, bounds)
    if batch.order is not None:
        y.index_copy_(0, batch.order, own)


def _adapter(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    parts = [y[:, low:high] for low, high in pairwise(bounds)]
    for group, rows in zip(batch.groups, batch.rows_by_group, strict=True):
        a, b = factors.by_slot[group.slot]
        inner = F.linear(x.index_select(0, rows), a).split(b.shape[1], 1)
        for part, own, (low, high) in zip(parts, inner, pairwise(bounds), strict=True):
            part.index_add_(0, rows, F.linear(own, b[low:high]), alpha=group.sign)


def _padded(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    """Groups of equal length that follow one another are multiplied where they are."""
    a, b = factors.form(pad, batch.own_slots, bounds)
    rank = b[0].shape[1]
    if batch.run is not None:
        first, count = batch.run
        end = first + count * len(a)
        inner = torch.bmm(x[first:end].unflatten(0, (-1, count)), a).split(rank, 2)
        whole = y[first:end].unflatten(0, (-1, count))
        for part, own, (low, high) in zip(b, inner, pairwise(bounds), strict=True):
            whole[:, :, low:high].baddbmm_(own, part)
        return
    filled, places = batch.padding
    signed = torch.bmm(x.index_select(0, filled).unflatten(0, (len(a), -1)), a)
    if batch.signs is not None:
        signed.mul_(batch.signs)
    for part, own, (low, high) in zip(b, signed.split(rank, 2), pairwise(bounds), strict=True):
        made = torch.bmm(own, part).flatten(0, 1).index_select(0, places)
        y[:, low:high].index_add_(0, batch.rows, made)


def _gathered(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    try:
        a, b = factors.form(pad, tuple(batch.kind.ranks), bounds)
    except KeyError:  # of an adapter that has left since the batch was made, which no row has
        _segmented(y, x, batch, factors, bounds, _product)
        return
    inner = torch.bmm(x.index_select(0, batch.rows)[:, None], a.index_select(0, batch.places))
    if batch.signs is not None:
        inner.mul_(batch.signs.index_select(0, batch.owners))
    for part, own, (low, high) in zip(b, inner.split(b[0].shape[1], 2), pairwise(bounds), strict=True):
        made = torch.bmm(own, part.index_select(0, batch.places))
        y[:, low:high].index_add_(0, batch.rows, made[:, 0])


def _joint(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    a, b = factors.form(join, batch.slots, bounds)
    inner = batch.keep_own_(F.linear(x, a))
    if len(b) == 1:
        y.addmm_(inner, b[0])
        return
    for part, own, (low, high) in zip(b, inner.split(len(a) // len(b), 1), pairwise(bounds), strict=True):
        y[:, low:high].addmm_(own, part)


def _joint_packed(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    a, b, columns = factors.form(join_packed, batch.slots, bounds)
    inner = batch.keep_own_(linear(x, a))
    for part, own, (low, high) in zip(b, inner.split(columns, 1), pairwise(bounds), strict=True):
        y[:, low:high].add_(linear(own, part))


def _joint_mixed(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    a, b, columns = factors.form(join_mixed, batch.slots, bounds)
    inner = batch.keep_own_(linear(x, a))
    for part, own, (low, high) in zip(b, inner.split(columns, 1), pairwise(bounds), strict=True):
        y[:, low:high].addmm_(own, part)


def tiles(rows: int) -> Way:
    """As `segmented`, in tiles of so many rows: what systems with one tile size do, and no way of ours."""
    return partial(_segmented, product=partial(_tiled, tile=rows))


@cache
def _compiled_way(name: str) -> Way:
    from auras_ros.kernels.lora_compiled import compiled

    return compiled(TILINGS[name], partial(_segmented, product=_product))


def _compiled(
    y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int], name: str = COMPILED
) -> None:
    _compiled_way(name)(y, x, batch, factors, bounds)


WAYS: Mapping[str, Way] = {
    "segmented": partial(_segmented, product=_product),
    "blocked": partial(_segmented, product=_blocked),
    "packed": partial(_segmented, product=_packed),
    "mixed": partial(_segmented, product=_mixed),
    "adapter": _adapter,
    "padded": _padded,
    "gathered": _gathered,
    "joint": _joint,
    "joint-packed": _joint_packed,
    "joint-mixed": _joint_mixed,
    **({name: partial(_compiled, name=name) for name in TILINGS} if NUMBA else {}),
}


def way_named(name: str) -> Way:
    """Raises ValueError for one that there is not."""
    if name in WAYS:
        return WAYS[name]
    why = "needs Numba (extra `numba`)" if name in TILINGS else f"is not known; known: {', '.join(WAYS)}"
    raise ValueError(f"way '{name}' {why}")
