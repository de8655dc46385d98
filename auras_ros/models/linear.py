"""A linear layer's weight in the form in which a device multiplies fastest.

On a CPU torch multiplies with MKL, which reads a weight as it stands. oneDNN keeps it in blocks of the processor's
vectors: with few rows, as in decode, that is two to five times as quick where the weight is large (docs/engine.md has
the figures). A small weight stays as it is: choosing oneDNN's kernel costs more than the product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PACKED_FROM = 1 << 17  # numbers of a weight; below, oneDNN's call costs more than it saves
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
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """As `Linear.plus`."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")
        return out


class Int8Linear(nn.Module):
    """Weights rounded to 8 bits, each output with a scale of its own; inputs to 8 bits at each call, by their range.
    torch's own kernel: FBGEMM on x86, QNNPACK on Arm."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        wide = weight.float()
        scale = wide.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        zero = torch.zeros(len(wide), dtype=torch.int64)
        rounded = torch.quantize_per_channel(wide, scale, zero, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.float())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic(x.float(), self.packed, True).to(x.dtype)  # True: exact sums
        return out

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """As `Linear.plus`."""
        out: Tensor = self(x) + other
        return out


AnyLinear = Linear | PackedLinear | Int8Linear


def fastest(weight: Tensor, bias: Tensor | None = None) -> AnyLinear:
    """The form for this weight, in its own type and on its device."""
    packs = weight.device.type == "cpu" and torch.backends.mkldnn.is_available() and weight.numel() >= PACKED_FROM
    if packs and weight.dtype in (torch.float32, torch.bfloat16):
        return PackedLinear(weight, bias)
    return Linear(weight.contiguous(), bias)


def repack(module: nn.Module) -> None:
    """Replaces each linear layer inside `module` whose fastest form is another; inference only."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            form = fastest(child.weight.detach(), None if child.bias is None else child.bias.detach())
            if isinstance(form, PackedLinear):
                setattr(module, name, form)
        else:
            repack(child)
