"""The way of `lora_ways` that is compiled: the products of all groups and parts of a layer in one launch: the threads
shrink, wait for each other, and expand. Factors are read where they lie, once for all rows of a group; nothing is
brought together or copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numba import cfunc, float32, int64, njit, types
from torch import Tensor

from auras_ros.kernels.compiled import FREE, LONG, Launch, number_at, take_share, wait_for_team
from auras_ros.kernels.compiled_tiles import (
    BYTES,
    COLUMNS,
    HALF_BYTES,
    add_products,
    add_products_half,
    columns_of_tile,
    inner_products,
    inner_products_half,
    rows_of_tile,
)
from auras_ros.kernels.compiled_tiles import ROWS as ROWS_OF_TILE
from auras_ros.kernels.lora_batch import AdapterRows, Way
from auras_ros.kernels.lora_factors import Factors, FactorSet
from auras_ros.kernels.lora_ways import CpuTiling

MANY_ROWS = (
    16  # from which a tile of rows meets all of A before the next one does; of fewer A is read once, from memory
)
PIECE = 512  # numbers of such a tile's rows at once: they stay in the nearest cache
WIDE_ROW, MANY_COLUMNS = 1024, 32  # from where on pieces are worth it: numbers of a row, columns of A
ROWS_OF_SHARE = 16  # from which threads divide the rows, and not the columns, when they shrink
SHARE = 1 << 15  # multiplications that are worth a thread

# Numbers of a layer's table, and of each of its groups
WIDTH, OUT, ROWS, PLACES, INNER, STEP, GROUPS, COUNT, PARTS, SHARES = range(FREE, FREE + 10)
FACTORS, Y, Y_STEP, X, X_STEP, TILE = range(SHARES + 1, SHARES + 7)  # from here on: of each layer
BOUNDS = TILE + len(CpuTiling._fields)
BEGIN, END, RANK, SIGN, SLOT, SIZE = range(6)
HALF, A, B, FACTORS_SIZE = range(4)  # of `FactorSet.addresses`


@njit
def _shrink(x, x_step, index, rows, a, half, width, tile, piece, low, high, inner, step):
    """inner[m, n] = x[index[m]] a[n], for n from low to high. tile: rows that meet `piece` numbers of all a[n] before
    the next ones do."""
    whole = low + (high - low) // COLUMNS * COLUMNS
    for k in range(0, width, piece):
        count, add = min(piece, width - k), int64(k > 0)
        for begin in range(0, rows, tile):
            end, n = min(begin + tile, rows), low
            while n < high:
                columns, m = COLUMNS if n < whole else 1, begin
                while m < end:
                    tall = rows_of_tile(end - m, columns)
                    at, out = index + m * LONG, inner + (m * step + n) * BYTES
                    own, place = x + k * BYTES, n * width + k
                    if half:
                        t = a + place * HALF_BYTES
                        inner_products_half(tall, columns, own, x_step, at, t, width, count, out, step, add)
                    else:
                        t = a + place * BYTES
                        inner_products(tall, columns, own, x_step, at, t, width, count, out, step, add)
                    m += tall
                n += columns


@njit
def _expand(tile, y, y_step, index, rows, inner, step, b, half, b_step, rank, low, high, sign):
    """y[index[m], o] += sign * inner[m] b[:, o], for o from low to high. tile: the address of a `CpuTiling`."""
    tile_rows, tile_columns, tile_steps = number_at(tile, 0), number_at(tile, 1), number_at(tile, 2)
    for begin in range(0, rows, tile_rows):
        end = min(begin + tile_rows, rows)
        for left in range(low, high, tile_columns):
            right = min(left + tile_columns, high)
            for j in range(0, rank, tile_steps):
                steps, o = min(tile_steps, rank - j), left
                while o < right:
                    columns, m = columns_of_tile(right - o), begin
                    while m < end:
                        tall = rows_of_tile(end - m, columns)
                        at, own, out = index + m * LONG, inner + (m * step + j) * BYTES, y + o * BYTES
                        t = b + (j * b_step + o) * (HALF_BYTES if half else BYTES)
                        if half:
                            add_products_half(tall, columns, out, out, y_step, at, own, step, 1, t, b_step, steps, sign)
                        else:
                            add_products(tall, columns, out, out, y_step, at, own, step, 1, t, b_step, steps, sign)
                        m += tall
                    o += columns


@njit
def _factors(table, group):
    return number_at(table, FACTORS) + number_at(group, SLOT) * FACTORS_SIZE * LONG


@njit
def _shrink_share(table, group, share):
    """Many rows are divided among threads, or else the columns."""
    begin, end, rank = number_at(group, BEGIN), number_at(group, END), number_at(group, RANK)
    factors = _factors(table, group)
    step, shares, places = number_at(table, STEP), number_at(table, SHARES), number_at(table, PLACES)
    low, high, width = 0, number_at(table, PARTS) * rank, number_at(table, WIDTH)
    many = end - begin >= MANY_ROWS
    tile = ROWS_OF_TILE[0] if many else max(end - begin, 1)
    piece = PIECE if many and width > WIDE_ROW and high >= MANY_COLUMNS else width
    if places >= ROWS_OF_SHARE * shares:
        begin, end = max(begin, places * share // shares), min(end, places * (share + 1) // shares)
    else:
        low, high = high * share // shares, high * (share + 1) // shares
    _shrink(
        number_at(table, X), number_at(table, X_STEP), number_at(table, ROWS) + begin * LONG, end - begin,
        number_at(factors, A), number_at(factors, HALF), width, tile, piece, low, high,
        number_at(table, INNER) + begin * step * BYTES, step,
    )  # fmt: skip


@njit
def _expand_share(table, group, share):
    begin, end, rank = number_at(group, BEGIN), number_at(group, END), number_at(group, RANK)
    factors = _factors(table, group)
    step, shares, out = number_at(table, STEP), number_at(table, SHARES), number_at(table, OUT)
    for part in range(number_at(table, PARTS)):
        low = max(number_at(table, BOUNDS + part), out * share // shares)
        high = min(number_at(table, BOUNDS + part + 1), out * (share + 1) // shares)
        _expand(
            table + TILE * LONG, number_at(table, Y), number_at(table, Y_STEP),
            number_at(table, ROWS) + begin * LONG, end - begin,
            number_at(table, INNER) + (begin * step + part * rank) * BYTES, step,
            number_at(factors, B), number_at(factors, HALF), out, rank, low, high, float32(number_at(group, SIGN)),
        )  # fmt: skip


@cfunc(types.void(int64))
def _kernel(table):
    """Each thread has a share of the columns or rows of every group: no two write the same number."""
    groups, count, shares = number_at(table, GROUPS), number_at(table, COUNT), number_at(table, SHARES)
    share = take_share(table, 0)
    while share < shares:
        for place in range(count):
            _shrink_share(table, groups + place * SIZE * LONG, share)
        share = take_share(table, 0)
    wait_for_team(table)
    share = take_share(table, 1)
    while share < shares:
        for place in range(count):
            _expand_share(table, groups + place * SIZE * LONG, share)
        share = take_share(table, 1)


class _Layers(NamedTuple):
    """What the layers of one kind share within a forward. groups, rows, inner: kept, as the table has their
    addresses."""

    launch: Launch
    shares: int
    groups: np.ndarray
    rows: Tensor
    inner: Tensor


def _prepare(batch: AdapterRows) -> _Layers:
    kind, rows = batch.kind, batch.rows
    step = kind.parts * max(kind.ranks[slot] for slot in batch.slots)
    inner, groups = torch.empty(len(rows), step), np.zeros((len(batch.groups), SIZE), np.int64)
    first, work = 0, 0
    for own, each in zip(groups, batch.groups, strict=True):
        rank, count = kind.ranks[each.slot], each.end - each.begin
        own[:] = first, first + count, rank, each.sign, each.slot
        first, work = first + count, work + count * rank * (kind.parts * kind.width + kind.out)
    shares = max(1, min(torch.get_num_threads(), work // SHARE))
    launch = Launch(_kernel, BOUNDS + kind.parts + 1)
    launch.table[WIDTH:FACTORS] = (
        kind.width, kind.out, rows.data_ptr(), len(rows), inner.data_ptr(), step,
        groups.ctypes.data, len(groups), kind.parts, shares,
    )  # fmt: skip
    return _Layers(launch, shares, groups, rows, inner)


def compiled(tiling: CpuTiling, otherwise: Way) -> Way:
    """otherwise: for other numbers than float32, and for tensors whose rows, or whose B's outputs, lie apart."""

    def add(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
        addresses = factors.addresses
        if addresses is None or not x.dtype == y.dtype == torch.float32 or y.stride(1) != 1 or x.stride(1) != 1:
            own = factors.by_slot  # of one moment: another thread may change the set
            if any(part.dtype != x.dtype for each in own.values() for part in each):
                factors = FactorSet({slot: Factors(*(part.to(x.dtype) for part in each)) for slot, each in own.items()})
            otherwise(y, x, batch, factors, bounds)
            return
        layers = batch.form(_prepare)
        layers.launch.table[FACTORS:] = (
            addresses.data_ptr(), y.data_ptr(), y.stride(0), x.data_ptr(), x.stride(0), *tiling, *bounds
        )  # fmt: skip
        layers.launch.run(layers.shares)

    return add
