"""Convolutions of a batch as one matrix product: the same numbers as torch's.

Guards: rows or positions that are mixed up; a stride or a padding that is forgotten; weights that are packed anew in
every call, which is what the module is there to avoid; a gradient that is lost.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from auras_ros.models.convolution import Conv1d, ConvTranspose1d

SHAPES = [(3, 1, 1), (3, 2, 1), (5, 1, 2), (1, 1, 0), (4, 2, 1)]  # kernel, stride, padding


@pytest.mark.parametrize(("kernel", "stride", "padding"), SHAPES)
@pytest.mark.parametrize(("ours", "theirs"), [(Conv1d, nn.Conv1d), (ConvTranspose1d, nn.ConvTranspose1d)])
@pytest.mark.parametrize("rows", [1, 2, 7, 33])
def test_it_is_torchs_convolution(
    ours: type[nn.Module], theirs: type[nn.Module], kernel: int, stride: int, padding: int, rows: int
) -> None:
    torch.manual_seed(0)
    mine = ours(6, 10, kernel, stride, padding).double()
    other = theirs(6, 10, kernel, stride, padding).double()
    other.load_state_dict(mine.state_dict())
    x = torch.randn(rows, 8, 6, dtype=torch.float64).transpose(1, 2)  # as a policy's actions come: not contiguous
    with torch.inference_mode():
        made, wanted = mine(x), other(x)
    assert made.shape == wanted.shape
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [Conv1d, ConvTranspose1d])
def test_a_batch_does_not_pack_weights(kind: type[nn.Module]) -> None:
    layer, x = kind(16, 16, 4, 2, 1), torch.randn(4, 16, 8)
    with torch.inference_mode(), torch.profiler.profile() as profile:
        layer(x)
    called = {event.key for event in profile.key_averages()}
    assert not {name for name in called if "convolution" in name}, called


@pytest.mark.parametrize("kind", [Conv1d, ConvTranspose1d])
def test_a_gradient_reaches_weight_and_bias(kind: type[nn.Module]) -> None:
    layer = kind(4, 6, 4, 2, 1)
    layer(torch.randn(3, 4, 8)).sum().backward()
    assert all(each.grad is not None and bool(each.grad.abs().sum() > 0) for each in layer.parameters())
