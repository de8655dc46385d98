"""An adapter's product added to a weight, compiled: base + sign * B A in one pass, so that the products are computed
while the weight comes from memory and goes back there (VaLoRA 4.4.1)."""

from __future__ import annotations

import torch
from numba import cfunc, float32, int64, njit, types
from torch import Tensor
from torch.nn import functional as F

from auras_ros.kernels.compiled import LONG, Launch, number_at, take_share
from auras_ros.kernels.compiled_tiles import BYTES, add_products, columns_of_tile, rows_of_tile

ROWS = 24  # of a share of a plain weight

# Numbers of the table
_, DATA, BASE, INDEX, INPUTS, WIDTH, BLOCK, A, B, OUTPUTS, RANK, SIGN, FIRST, SHARES, SIZE = range(15)


@njit
def _add(table, begin, step, rows, low, high, factors, factors_step, t, t_step):
    """Of rows of `step` numbers from number `begin` of the weight on, the columns from low to high. t: of column low.
    The factors of a row stand `factors_step` apart, those of the rows side by side."""
    data, base = number_at(table, DATA) + begin * BYTES, number_at(table, BASE) + begin * BYTES
    index, rank, sign = number_at(table, INDEX), number_at(table, RANK), float32(number_at(table, SIGN))
    o = low
    while o < high:
        columns, m = columns_of_tile(high - o), 0
        while m < rows:
            tall = rows_of_tile(rows - m, columns)
            add_products(
                tall, columns, data + o * BYTES, base + o * BYTES, step, index + m * LONG, factors + m * BYTES, 1,
                factors_step, t + (o - low) * BYTES, t_step, rank, sign, 1,
            )  # fmt: skip
            m += tall
        o += columns


@cfunc(types.void(int64))
def _add_to_blocks(table):
    """A share is a block: a row of it has an input's weights for WIDTH outputs."""
    width, inputs, outputs = number_at(table, WIDTH), number_at(table, INPUTS), number_at(table, OUTPUTS)
    a, b, first, shares = number_at(table, A), number_at(table, B), number_at(table, FIRST), number_at(table, SHARES)
    share = take_share(table)
    while share < shares:
        block = first // width + share
        low, high = max(first, block * width), min(first + outputs, (block + 1) * width)
        _add(
            table, block * number_at(table, BLOCK), width, inputs, low - block * width, high - block * width, a, inputs,
            b + (share * number_at(table, RANK) * width + low - block * width) * BYTES, width,
        )  # fmt: skip
        share = take_share(table)


@cfunc(types.void(int64))
def _add_to_rows(table):
    """A share is some rows of the weight as it stands."""
    inputs, outputs, first = number_at(table, INPUTS), number_at(table, OUTPUTS), number_at(table, FIRST)
    a, b, shares = number_at(table, A), number_at(table, B), number_at(table, SHARES)
    share = take_share(table)
    while share < shares:
        row = share * ROWS
        rows = min(ROWS, outputs - row)
        _add(table, (first + row) * inputs, inputs, rows, 0, inputs, b + row * BYTES, outputs, a, inputs)
        share = take_share(table)


def add_product_(data: Tensor, base: Tensor, a: Tensor, b: Tensor, first: int, sign: int) -> None:
    """data = base + sign * b a, for the outputs from `first` on. data and base: [out, in], or [blocks, in, width] with
    `width` outputs in a block; base may be data. float32, in one piece. a: [rank, in], b:
    [outputs, rank], float32 or bfloat16."""
    inputs, outputs, b = a.shape[1], len(b), b.float()
    if data.dim() == 3:
        width, rows = data.shape[2], inputs
        before = first % width
        shares = -(-(before + outputs) // width)
        own_b = F.pad(b.t(), (before, shares * width - before - outputs)).unflatten(1, (shares, width))
        own_b = own_b.transpose(0, 1).contiguous()
    else:
        width, rows, shares, own_b = 0, ROWS, -(-outputs // ROWS), b.t().contiguous()
    own_a, index = a.float().contiguous(), torch.arange(rows)
    launch = Launch(_add_to_blocks if width else _add_to_rows, SIZE)
    launch.table[[DATA, BASE, INDEX]] = data.data_ptr(), base.data_ptr(), index.data_ptr()
    launch.table[[INPUTS, WIDTH, BLOCK, A, B]] = inputs, width, data.stride(0), own_a.data_ptr(), own_b.data_ptr()
    launch.table[[OUTPUTS, RANK, SIGN, FIRST, SHARES]] = outputs, len(a), sign, first, shares
    launch.run(min(torch.get_num_threads(), shares))
