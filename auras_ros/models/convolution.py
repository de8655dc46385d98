"""Convolutions over a short horizon, many rows at a time, as one matrix product each.

On a CPU torch gives a batch to oneDNN, which packs the weights anew in every call: for the few rows of a pipeline that
takes longer than the product. One row, very many, and any other device are torch's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST_ROWS = 32  # from here on packing is worth it


def _is_torchs(x: Tensor) -> bool:
    return len(x) == 1 or len(x) > MOST_ROWS or x.device.type != "cpu"


class Conv1d(nn.Conv1d):
    """[B, inputs, L] -> [B, outputs, L']: nn.Conv1d with bias, without groups and dilation, padded with zeros."""

    def forward(self, x: Tensor) -> Tensor:
        if _is_torchs(x):
            return super().forward(x)
        assert self.bias is not None
        assert isinstance(self.padding, tuple)
        (kernel,), (stride,), (padding,) = self.kernel_size, self.stride, self.padding
        seen = F.pad(x, (padding, padding)).unfold(2, kernel, stride)  # [B, inputs, L', kernel]
        columns = seen.permute(1, 3, 0, 2).reshape(-1, len(x) * seen.shape[2])
        out = torch.addmm(self.bias[:, None], self.weight.view(self.out_channels, -1), columns)
        return out.view(self.out_channels, len(x), -1).transpose(0, 1)


class ConvTranspose1d(nn.ConvTranspose1d):
    """[B, inputs, L] -> [B, outputs, L']: nn.ConvTranspose1d with bias, without groups, dilation and output padding."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if _is_torchs(x):
            return super().forward(x, output_size)
        assert self.bias is not None
        assert isinstance(self.padding, tuple)
        (kernel,), (stride,), (padding,) = self.kernel_size, self.stride, self.padding
        rows, inputs, length = x.shape
        parts = self.weight.view(inputs, -1).t() @ x.transpose(0, 1).reshape(inputs, -1)  # [outputs * kernel, B * L]
        columns = parts.view(-1, rows, length).transpose(0, 1)
        size = (length - 1) * stride - 2 * padding + kernel
        out = F.fold(columns, (1, size), (1, kernel), padding=(0, padding), stride=(1, stride))
        return out.squeeze(2) + self.bias[:, None]
