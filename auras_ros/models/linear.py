"""A linear layer's weight in the form in which a device multiplies fastest.

On a CPU torch multiplies with MKL, which reads a weight as it stands. oneDNN keeps it in blocks of the processor's
vectors: that is two to five times as quick (docs/engine.md has the figures), but choosing its kernel takes as long as a
small product. So a small weight is kept in both forms, and the number of rows decides.
"""

from __future__ import annotations

import copy
import ctypes
import timeit
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.kernels import NUMBA
from auras_ros.models.huge_pages import move_to_huge_pages

PACKED_FROM = 1 << 17  # numbers of a weight that is kept in oneDNN's blocks alone
PACKED_WORK = 1 << 19  # multiplications from which oneDNN's call costs less than it saves
TINY = torch.finfo(torch.float32).tiny
PROBE = 2048  # inputs and outputs of the layer that is measured: more numbers than a core's cache holds
BLOCK_WIDTHS = (64, 48, 32, 24, 16, 8)  # outputs that stand together in oneDNN's blocks
TOGETHER = 4  # blocks whose sums are one call
ROWS = 8  # for which oneDNN chooses the blocks; others are as quick with them


class Linear(nn.Module):
    """x @ weight.T + bias, with the weight as it stands. weight: [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """The product and `other`, in one call. x: [T, in], other [T, out]. Of a layer without a bias."""
        return torch.addmm(other, x, self.weight.t())


class PackedLinear(nn.Module):
    """The same with the weight in oneDNN's blocks. float32 or bfloat16, on a CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")
        return out

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """As `Linear.plus`."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")
        return out


class SmallLinear(PackedLinear):
    """A small weight, kept as it stands too: that is the form for few rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.plain = weight.detach().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.plain, self.bias) if self._few(x) else super().forward(x)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """As `Linear.plus`."""
        return torch.addmm(other, x, self.plain.t()) if self._few(x) else super().plus(x, other)

    def _few(self, x: Tensor) -> bool:
        return x.numel() * self.out_features < PACKED_WORK


class Int8Linear(nn.Module):
    """Weights in 8 bits, each output with a scale of its own; inputs rounded to 8 bits at each call, each token with a
    scale of its own, so that no token depends on what else is in the batch. oneDNN's kernel, on x86."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        wide = weight.float()
        self.scale = wide.abs().amax(1).clamp_min(TINY) / 127
        rounded = (wide / self.scale[:, None]).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zero = torch.zeros(len(wide), dtype=torch.int64)
        self.bias = bias
        # Without VNNI two products are added in 16 bits, where 8 bits of input could overflow.
        self.levels = 127 if torch.cpu._is_vnni_supported() else 63

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True).float().clamp_min(TINY) / self.levels
        rounded = (x / scale).round_().add_(self.levels + 1).to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, self.levels + 1, self.weight, self.scale, self.zero, None, 1.0, 0, torch.float32, "none",
            [], "",
        ).mul_(scale)  # fmt: skip
        return (out if self.bias is None else out.add_(self.bias)).to(x.dtype)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """As `Linear.plus`."""
        out: Tensor = self(x) + other
        return out


AnyLinear = Linear | PackedLinear | Int8Linear


def fastest(weight: Tensor, bias: Tensor | None = None) -> AnyLinear:
    """The form for this weight, in its own type and on its device."""
    packs = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    if packs and (weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and _packs_bfloat16())):
        return (PackedLinear if weight.numel() >= PACKED_FROM else SmallLinear)(weight, bias)
    return Linear(weight.contiguous(), bias)


def in_huge_pages(linear: AnyLinear) -> AnyLinear:
    """The same layer, of which every decode reads all: its weight in huge pages, where the system has them."""
    if isinstance(linear, Linear):
        move_to_huge_pages(linear.weight)
    elif isinstance(linear, PackedLinear):
        move_to_huge_pages(_memory(linear.weight))
    return linear


def _packs_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def bfloat16_is_faster() -> bool:
    """Whether this CPU multiplies bfloat16 faster than float32, with few rows as in decode and with many as in prefill.
    Measured once, within a tenth of a second."""

    @torch.no_grad()
    def seconds(rows: int, dtype: torch.dtype) -> float:
        form = fastest(torch.ones(PROBE, PROBE, dtype=dtype))
        return min(timeit.repeat(partial(form, torch.ones(rows, PROBE, dtype=dtype)), number=1, repeat=5))

    return all(seconds(rows, torch.bfloat16) < seconds(rows, torch.float32) for rows in (ROWS, 16 * ROWS))


def duplicate(linear: AnyLinear) -> AnyLinear:
    """The same layer with a weight of its own in every form, which has the same numbers. Not of 8 bits."""
    if isinstance(linear, Linear):
        return in_huge_pages(Linear(linear.weight.detach().clone(), linear.bias))
    made = copy.copy(linear)
    made.weight = linear.weight.clone()
    if isinstance(made, SmallLinear):
        made.plain = made.plain.clone()
    return in_huge_pages(made)


class WeightBlocks(NamedTuple):
    """A weight's numbers where they are. data: [out, in] (plain), or in oneDNN's blocks [blocks, in / pairs, width,
    pairs] of `width` outputs each, padded with zeros; pairs is 2 in half precision."""

    data: Tensor
    inputs: int

    def add_(self, base: Tensor, a: Tensor, b: Tensor, first: int, sign: int) -> None:
        """These outputs' weights = base + sign * b a. a: [rank, in], b: [outputs, rank], of the outputs from `first`
        on, in its type, or for float32 in bfloat16 with Numba. base: as `data`, or `data` itself. In one pass by a
        kernel of ours, where Numba is installed; else a few blocks after others, so that they are in the cache until
        their sum is written."""
        if NUMBA and self.data.dtype == torch.float32 and self.data.device.type == "cpu":
            from auras_ros.kernels.weights_compiled import add_product_

            data, base = (each.squeeze(3) if each.dim() == 4 else each for each in (self.data, base))
            add_product_(data, base, a, b, first, sign)
            return
        if self.data.dim() == 2:
            rows = slice(first, first + len(b))
            torch.addmm(base[rows], b, a, alpha=sign, out=self.data[rows])
            return
        _, groups, width, pairs = self.data.shape
        wide, end = F.pad(a, (0, groups * pairs - self.inputs)).t(), first + len(b)
        whole = range(-(-first // width), end // width) if pairs == 1 else range(0)
        for begin in whole[::TOGETHER]:
            blocks = slice(begin, min(begin + TOGETHER, whole.stop))
            own = b[begin * width - first : blocks.stop * width - first].unflatten(0, (-1, width)).transpose(1, 2)
            many = wide.expand(len(own), -1, -1)
            torch.baddbmm(base[blocks, ..., 0], many, own, alpha=sign, out=self.data[blocks, ..., 0])
        for block in range(first // width, -(-end // width)):
            if block in whole:
                continue
            low, high = max(first, block * width), min(end, (block + 1) * width)
            here, own = slice(low - block * width, high - block * width), b[low - first : high - first].t()
            if pairs == 1:
                part = self.data[block, :, here, 0]
                torch.addmm(base[block, :, here, 0], wide, own, alpha=sign, out=part)
            else:
                added = (wide.float() @ own.float()).unflatten(0, (groups, pairs)).transpose(1, 2)
                self.data[block, :, here] = torch.add(base[block, :, here], added, alpha=sign)


def weight_blocks(linear: AnyLinear) -> list[WeightBlocks]:
    """All forms in which a layer keeps its weight, where they lie in memory. Raises ValueError for one that nothing can
    be added to: 8 bits, or blocks in an order that is not known."""
    if isinstance(linear, Linear):
        return [WeightBlocks(linear.weight, linear.weight.shape[1])]
    if not isinstance(linear, PackedLinear):
        raise ValueError("nothing can be added to weights in 8 bits")
    out, inputs = linear.out_features, linear.in_features
    width, pairs = block_form(out, inputs, linear.weight.dtype)
    packed = WeightBlocks(_memory(linear.weight).view(-(-out // width), -1, width, pairs), inputs)
    return [packed, WeightBlocks(linear.plain, inputs)] if isinstance(linear, SmallLinear) else [packed]


def _memory(weight: Tensor) -> Tensor:
    """The numbers of a tensor in oneDNN's blocks, in their order, shared with it while it lives."""
    size: int = torch.ops.mkldnn._nbytes(weight)
    address: int = torch.ops.mkldnn.data_ptr(weight)
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=weight.dtype)


@cache
def block_form(out: int, inputs: int, dtype: torch.dtype) -> tuple[int, int]:
    """Width and pairs (`WeightBlocks`) of a packed weight of this shape: those with which random numbers are found
    where they should be. Raises ValueError for blocks in another order."""
    marks = torch.randint(1, 256, (out, inputs), generator=torch.Generator().manual_seed(0)).to(dtype)
    layer = PackedLinear(marks, None)
    numbers = _memory(layer.weight)
    for width, pairs in product(BLOCK_WIDTHS, (1, 2)):
        blocks = -(-out // width)
        if numbers.numel() % (blocks * width * pairs) == 0:
            plain = numbers.view(blocks, -1, width, pairs).permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
            if plain.shape[1] >= inputs and torch.equal(plain[:out, :inputs], marks):
                return width, pairs
    raise ValueError(f"oneDNN keeps a weight of {out} x {inputs} in blocks whose order is not known")


def repack(module: nn.Module) -> None:
    """Replaces each linear layer inside `module` whose fastest form is another; inference only."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            form = fastest(child.weight.detach(), None if child.bias is None else child.bias.detach())
            if isinstance(form, PackedLinear):
                setattr(module, name, form)
        else:
            repack(child)
