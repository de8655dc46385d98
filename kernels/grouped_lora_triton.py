"""`grouped_lora` on a GPU: shrink (x A^T) and expand (y += sign * . B^T) for rows of other adapters and ranks.

A grid depends on the largest sizes alone, and every program finds its rows in index tensors that stay where they are
(`lora_index`): so the kernels can be captured in a CUDA graph, and a replay takes what the tensors have then. Sums are
in float32, the product between the two kernels is rounded to the type of x as torch rounds it. Where `SPLIT_K` divides
a sum, each share has a place of its own and the second kernel adds them in order: no atomics, so equal inputs give
equal bits. Triton is imported with this module alone; the reference is `grouped_lora`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_table_file import gpu_name
from auras_ros.kernels.lora_tilings import EXPAND, MOST_SPLIT, SHRINK, Tiling, TilingTable

SPLIT_TOKENS = 1024  # up to which there is room for every split of a sum; more tokens make programs enough


def table_name(device: torch.device) -> str:
    """The device that a table of tilings belongs to."""
    return gpu_name(torch.cuda.get_device_name(device), triton.__version__)


@triton.jit
def _rows_of(begins, ends, tile, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr):
    """(group, first place, end of the group's places) of a tile; group GROUPS if there is no such tile."""
    each = tl.arange(0, GROUPS)
    first = tl.load(begins + each)
    last = tl.load(ends + each)
    until = tl.cumsum((last - first + BLOCK_M - 1) // BLOCK_M, 0)
    group = tl.sum((until <= tile).to(tl.int32), 0)
    before = tl.sum(tl.where(each == group - 1, until, 0), 0)
    begin = tl.sum(tl.where(each == group, first, 0), 0) + (tile - before) * BLOCK_M
    end = tl.sum(tl.where(each == group, last, 0), 0)
    return group, begin, end


@triton.jit
def shrink_kernel(
    x, inner, order, begins, ends, slots, a_table, ranks,
    width, x_stride, inner_stride, split_stride,
    PARTS: tl.constexpr, GROUPS: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """inner[split, places, parts * rank] = x[rows, its share of in] A^T."""
    group, begin, end = _rows_of(begins, ends, tl.program_id(0), GROUPS, BLOCK_M)
    if group >= GROUPS:
        return
    slot = tl.load(slots + group)
    columns = PARTS * tl.load(ranks + slot)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if tl.program_id(1) * BLOCK_N >= columns:
        return
    places = begin + tl.arange(0, BLOCK_M)
    rows = tl.load(order + places, mask=places < end, other=0).to(tl.int64)
    a = tl.load(a_table + slot).to(tl.pointer_type(x.dtype.element_ty))
    if ALIGNED:
        a = tl.multiple_of(a, 16)
    share = tl.cdiv(tl.cdiv(width, BLOCK_K), SPLIT_K) * BLOCK_K
    start = tl.program_id(2) * share
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, tl.minimum(width, start + share), BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        own = tl.load(x + rows[:, None] * x_stride + ks[None, :], (places < end)[:, None] & (ks < width)[None, :], 0.0)
        its = tl.load(a + n[None, :] * width + ks[:, None], (n < columns)[None, :] & (ks < width)[:, None], 0.0)
        acc = tl.dot(own, its, acc, input_precision="ieee")
    into = inner + tl.program_id(2) * split_stride + places[:, None] * inner_stride + n[None, :]
    tl.store(into, acc, (places < end)[:, None] & (n < columns)[None, :])


@triton.jit(do_not_specialize=["splits"])
def expand_kernel(
    y, inner, order, begins, ends, slots, b_table, ranks, bounds,
    y_stride, inner_stride, split_stride, splits,
    SIGN: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[rows, out] += SIGN * (sum of inner's shares) B^T. A block of outputs lies within one part."""
    group, begin, end = _rows_of(begins, ends, tl.program_id(0), GROUPS, BLOCK_M)
    if group >= GROUPS:
        return
    first, column, limit, part = 0, 0, 0, 0
    for each in tl.static_range(PARTS):
        low = tl.load(bounds + each)
        high = tl.load(bounds + each + 1)
        here = tl.program_id(1) - first
        mine = (here >= 0) & (here * BLOCK_N < high - low)
        column = tl.where(mine, low + here * BLOCK_N, column)
        limit = tl.where(mine, high, limit)
        part = tl.where(mine, each, part)
        first += tl.cdiv(high - low, BLOCK_N)
    slot = tl.load(slots + group)
    rank = tl.load(ranks + slot)
    places = begin + tl.arange(0, BLOCK_M)
    rows = tl.load(order + places, mask=places < end, other=0).to(tl.int64)
    b = tl.load(b_table + slot).to(tl.pointer_type(y.dtype.element_ty))
    if ALIGNED:
        b = tl.multiple_of(b, 16)
        rank = tl.multiple_of(rank, 8)
    n = column + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, rank, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        of = inner + places[:, None] * inner_stride + (part * rank + ks)[None, :]
        known = (places < end)[:, None] & (ks < rank)[None, :]
        own = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32)
        for split in tl.range(splits, num_stages=1):
            own += tl.load(of + split * split_stride, known, 0.0)
        its = tl.load(b + n[None, :] * rank + ks[:, None], (n < limit)[None, :] & (ks < rank)[:, None], 0.0)
        acc = tl.dot(own.to(y.dtype.element_ty), its, acc, input_precision="ieee")
    into = y + rows[:, None] * y_stride + n[None, :]
    mask = (places < end)[:, None] & (n < limit)[None, :]
    tl.store(into, (tl.load(into, mask, 0.0).to(tl.float32) + SIGN * acc).to(y.dtype.element_ty), mask)


class TritonLora:
    """The kernels for batches of at most so many rows, groups and ranks, with what lies between the two."""

    def __init__(self, index: GroupIndex, rank: int, parts: int, tilings: TilingTable | None = None) -> None:
        """rank: the largest; parts: the most that a layer has."""
        self.index, self.rank, self.parts = index, rank, parts
        self._tilings = tilings or TilingTable({})
        places = max(index.tokens, MOST_SPLIT * min(index.tokens, SPLIT_TOKENS))
        self._inner = torch.empty(places, parts * rank, device=index.device)

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers, fixed: Mapping[str, Tiling] | None = None) -> None:
        """x [T, in], y [T, out], rows without gaps. The groups are those that the index has when this runs. fixed: a
        tiling for shrink and for expand; else they are chosen by the largest sizes."""
        chosen = {phase: (fixed or {}).get(phase) or self._chosen(phase, y, x, layer) for phase in (SHRINK, EXPAND)}
        shrink = chosen[SHRINK]
        shrink = shrink._replace(split_k=min(shrink.split_k, len(self._inner) // len(x)))
        for sign in self.index.signs:
            self._launch(y, x, layer, sign, shrink, chosen[EXPAND])

    def _chosen(self, phase: str, y: Tensor, x: Tensor, layer: LayerPointers) -> Tiling:
        shape = LoraShape(phase, len(x), self.rank, x.shape[1], y.shape[1], layer.parts, self.index.groups)
        return self._tilings.choose(shape)

    def _launch(self, y: Tensor, x: Tensor, layer: LayerPointers, sign: int, shrink: Tiling, expand: Tiling) -> None:
        groups, inner = self.index.of(sign), self._inner
        strides = inner.stride(0), len(x) * inner.stride(0)  # of a place, of a share of the sum
        lists = (self.index.order, groups.begins, groups.ends, groups.slots)
        columns = layer.parts * self.rank
        tiles = len(x) // shrink.block_m + self.index.groups
        shrink_kernel[tiles, triton.cdiv(columns, shrink.block_n), shrink.split_k](
            x, inner, *lists, layer.a, layer.ranks,
            x.shape[1], x.stride(0), *strides,
            PARTS=layer.parts, GROUPS=self.index.padded, ALIGNED=layer.aligned,
            BLOCK_M=shrink.block_m, BLOCK_N=shrink.block_n, BLOCK_K=shrink.block_k, SPLIT_K=shrink.split_k,
            num_warps=shrink.warps, num_stages=shrink.stages,
        )  # fmt: skip
        blocks = sum(triton.cdiv(size, expand.block_n) for size in layer.sizes)
        tiles = len(x) // expand.block_m + self.index.groups
        expand_kernel[tiles, blocks](
            y, inner, *lists, layer.b, layer.ranks, layer.bounds,
            y.stride(0), *strides, shrink.split_k,
            SIGN=sign, PARTS=layer.parts, GROUPS=self.index.padded, ALIGNED=layer.aligned,
            BLOCK_M=expand.block_m, BLOCK_N=expand.block_n, BLOCK_K=expand.block_k,
            num_warps=expand.warps, num_stages=expand.stages,
        )  # fmt: skip
