"""The forms in which the ways on a CPU ask for the factors of some adapters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.kernels.lora_factors import Factors

ROWS = 8  # for which oneDNN chooses the blocks; others are as quick with them


class JoinedFactors(NamedTuple):
    """Of several adapters, the columns of one after those of another. a: [parts * columns, in], part by part; b: of
    each part [columns, its outputs]."""

    a: Tensor
    b: tuple[Tensor, ...]


class PackedFactors(NamedTuple):
    """`JoinedFactors` in oneDNN's blocks. columns: of one part."""

    a: Tensor
    b: tuple[Tensor, ...]
    columns: int


class MixedFactors(NamedTuple):
    """`JoinedFactors` with a in oneDNN's blocks, which its long sums gain from, and b as it stands, to which MKL adds.
    columns: of one part."""

    a: Tensor
    b: tuple[Tensor, ...]
    columns: int


class PaddedFactors(NamedTuple):
    """Of several adapters with zeros up to the largest rank. a: [adapters, in, parts * rank]; b: of each part
    [adapters, rank, its outputs]."""

    a: Tensor
    b: tuple[Tensor, ...]


def join(factors: Sequence[Factors], parts: int, bounds: Sequence[int]) -> JoinedFactors:
    """One adapter alone is not copied."""
    if len(factors) == 1:
        a, b = factors[0]
        return JoinedFactors(a, tuple(b[low:high].t() for low, high in pairwise(bounds)))
    a = torch.cat([each.a.unflatten(0, (parts, -1)) for each in factors], 1).flatten(0, 1)
    return JoinedFactors(
        a, tuple(torch.cat([each.b[low:high].t() for each in factors]) for low, high in pairwise(bounds))
    )


def join_packed(factors: Sequence[Factors], parts: int, bounds: Sequence[int]) -> PackedFactors:
    a, b = join(factors, parts, bounds)
    return PackedFactors(_packed(a), tuple(_packed(each.t()) for each in b), len(a) // parts)


def join_mixed(factors: Sequence[Factors], parts: int, bounds: Sequence[int]) -> MixedFactors:
    a, b = join(factors, parts, bounds)
    return MixedFactors(_packed(a), b, len(a) // parts)


def pad(factors: Sequence[Factors], parts: int, bounds: Sequence[int]) -> PaddedFactors:
    rank, (a, b) = max(each.b.shape[1] for each in factors), factors[0]
    all_a = a.new_zeros(len(factors), a.shape[1], parts, rank)
    all_b = b.new_zeros(len(factors), rank, len(b))
    for place, (a, b) in enumerate(factors):
        own = b.shape[1]
        all_a[place, :, :, :own] = a.t().unflatten(1, (parts, own))
        all_b[place, :own] = b.t()
    return PaddedFactors(all_a.flatten(2), tuple(all_b[..., low:high] for low, high in pairwise(bounds)))


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T by oneDNN, where there is one for this type. weight: [out, in], plain or in blocks."""
    if not _has_blocks(x.dtype):
        return F.linear(x, weight)
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, None, "none", [], "")
    return out


def _packed(weight: Tensor) -> Tensor:
    """weight: [out, in]."""
    if not _has_blocks(weight.dtype):
        return weight.contiguous()
    made: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    return made


@cache
def _has_blocks(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
