"""An adapter's product added to a weight, compiled: base + sign * B A in one pass, so that the products are computed
while the weight comes from memory and goes back there (VaLoRA 4.4.1)."""

from __future__ import annotations

import torch
from numba import cfunc, float32, int64, njit, types
from torch import Tensor

from auras_ros.kernels.compiled import FREE, LONG, Launch, number_at, take_share, wait_for_team
from auras_ros.kernels.compiled_tiles import (
    BYTES,
    COPIED,
    HALF_BYTES,
    LANES,
    WIDE,
    add_products,
    columns_of_tile,
    copy_numbers,
    copy_numbers_half,
    room,
    rows_of_tile,
    stream_products,
)
from auras_ros.kernels.compiled_tiles import ROWS as TILE_ROWS

ROWS, TALL = 24, TILE_ROWS[0]  # of a share of a plain weight, and of a tile
PIECES = 16  # shares of A's inputs when factors are arranged

# Numbers of the table
DATA, BASE, INDEX, INPUTS, WIDTH, BLOCK, A, B, B_STEP, HALF = range(FREE, FREE + 10)
OWN_A, OWN_B, OUTPUTS, RANK, SIGN, FIRST, SHARES, SIZE = range(FREE + 10, FREE + 18)


@njit
def _add(table, begin, step, rows, low, high, factors, tile_step, factors_step, t, t_step):
    """Of rows of `step` numbers from number `begin` of the weight on, the columns from low to high. t: of column low.
    The factors of TALL rows begin `tile_step` numbers after those of the TALL before, side by side; those of the next
    rank stand `factors_step` apart."""
    data, base = number_at(table, DATA) + begin * BYTES, number_at(table, BASE) + begin * BYTES
    index, rank, sign = number_at(table, INDEX), number_at(table, RANK), float32(number_at(table, SIGN))
    streams = (data | (step * BYTES)) % (LANES * BYTES) == 0
    held, late_base, late_out = room(), base, 0
    o = low
    while o < high:
        columns, m = columns_of_tile(high - o), 0
        while m < rows:
            tall = rows_of_tile(rows - m, columns)
            own, own_t = factors + (m // TALL * tile_step + m % TALL) * BYTES, t + (o - low) * BYTES
            if streams and o % LANES == 0 and columns == WIDE and tall == TALL:
                place = (m * step + o) * BYTES
                stream_products(
                    base + place, step, own, factors_step, own_t, t_step, rank, sign, held, late_base, late_out
                )
                late_base, late_out = base + place, data + place
            else:
                add_products(
                    tall, columns, data + o * BYTES, base + o * BYTES, step, index + m * LONG, own, 1,
                    factors_step, own_t, t_step, rank, sign,
                )  # fmt: skip
            m += tall
        o += columns
    if late_out != 0:
        stream_products(late_base, step, factors, factors_step, t, t_step, 0, sign, held, late_base, late_out)


@njit
def _copy(source, half, place, out, count):
    """Of numbers from this place on."""
    if half:
        copy_numbers_half(source + place * HALF_BYTES, out, count)
    else:
        copy_numbers(source + place * BYTES, out, count)


@njit
def _arrange(table):
    """The factors in float32 in the order in which tiles read them: A's of TALL inputs, then of the next TALL; B's of
    WIDTH outputs. A share is a rank of B for all outputs, as a few outputs of many ranks would come from memory slowly;
    or some of A's inputs."""
    width, inputs, first = number_at(table, WIDTH), number_at(table, INPUTS), number_at(table, FIRST)
    rank, half, last = number_at(table, RANK), number_at(table, HALF), first + number_at(table, OUTPUTS)
    tiles = (inputs + TALL - 1) // TALL
    share = take_share(table, 0)
    while share < rank + PIECES:
        if share < rank:
            for block in range(first // width, (last - 1) // width + 1):
                low, high = max(first, block * width), min(last, (block + 1) * width)
                out = number_at(table, OWN_B) + ((block - first // width) * rank + share) * width * BYTES
                _copy(number_at(table, B), half, share * number_at(table, B_STEP) + low - first, out, high - low)
        else:
            piece = share - rank
            for tile in range(tiles * piece // PIECES, tiles * (piece + 1) // PIECES):
                place = tile * TALL
                count = min(COPIED, inputs - place)
                for j in range(rank):
                    out = number_at(table, OWN_A) + (tile * rank + j) * COPIED * BYTES
                    _copy(number_at(table, A), half, j * inputs + place, out, count)
        share = take_share(table, 0)


@cfunc(types.void(int64))
def _add_to_blocks(table):
    """A share is a block: a row of it has an input's weights for WIDTH outputs, whose part of B was arranged before."""
    _arrange(table)
    wait_for_team(table)
    width, inputs, outputs = number_at(table, WIDTH), number_at(table, INPUTS), number_at(table, OUTPUTS)
    rank, first, shares = number_at(table, RANK), number_at(table, FIRST), number_at(table, SHARES)
    share = take_share(table, 1)
    while share < shares:
        block = first // width + share
        low, high = max(first, block * width), min(first + outputs, (block + 1) * width)
        own_b = number_at(table, OWN_B) + share * rank * width * BYTES
        _add(
            table, block * number_at(table, BLOCK), width, inputs, low - block * width, high - block * width,
            number_at(table, OWN_A), rank * COPIED, COPIED, own_b, width,
        )  # fmt: skip
        share = take_share(table, 1)


@cfunc(types.void(int64))
def _add_to_rows(table):
    """A share is some rows of the weight as it stands."""
    inputs, outputs, first = number_at(table, INPUTS), number_at(table, OUTPUTS), number_at(table, FIRST)
    a, b, shares = number_at(table, A), number_at(table, B), number_at(table, SHARES)
    share = take_share(table, 0)
    while share < shares:
        row = share * ROWS
        rows = min(ROWS, outputs - row)
        _add(table, (first + row) * inputs, inputs, rows, 0, inputs, b + row * BYTES, TALL, outputs, a, inputs)
        share = take_share(table, 0)


def add_product_(data: Tensor, base: Tensor, a: Tensor, b: Tensor, first: int, sign: int) -> None:
    """data = base + sign * b a, for the outputs from `first` on. data and base: [out, in], or [blocks, in, width] with
    `width` outputs in a block; base may be data. float32, in one piece. a: [rank, in], b:
    [outputs, rank], float32 or bfloat16."""
    inputs, outputs, rank = a.shape[1], *b.shape
    index, threads = torch.arange(data.shape[1] if data.dim() == 3 else ROWS), torch.get_num_threads()
    a, b = a.contiguous(), b.t() if b.stride(0) == 1 else b.t().contiguous()
    if data.dim() == 3:
        kernel, width, step = _add_to_blocks, data.shape[2], data.stride(0)
        shares = -(-(first % width + outputs) // width)
    else:
        kernel, width, step, shares = _add_to_rows, 0, 0, -(-outputs // ROWS)
        a, b = a.float(), b.float().contiguous()
    own_a, own_b = torch.empty(-(-inputs // TALL) * rank * COPIED), torch.empty(shares * rank * width)
    launch = Launch(kernel, SIZE)
    launch.table[[DATA, BASE, INDEX]] = data.data_ptr(), base.data_ptr(), index.data_ptr()
    launch.table[[INPUTS, WIDTH, BLOCK, OUTPUTS, RANK, SIGN, FIRST]] = inputs, width, step, outputs, rank, sign, first
    launch.table[[A, B, B_STEP, HALF]] = a.data_ptr(), b.data_ptr(), b.stride(0), b.dtype == torch.bfloat16
    launch.table[[OWN_A, OWN_B, SHARES]] = own_a.data_ptr(), own_b.data_ptr(), shares
    launch.run(threads)
