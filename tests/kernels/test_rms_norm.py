"""RMSNorm against its formula, token by token.

Guards: an eps that is added after the root; a mean over the wrong dimension; a sum in half precision.
"""

from __future__ import annotations

import pytest
import torch

from auras_ros.kernels.rms_norm import rms_norm
from auras_ros.models.llama import RmsNorm


@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (2, 3, 64)])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_it_is_the_formula(shape: tuple[int, ...], eps: float) -> None:
    random = torch.Generator().manual_seed(1)
    x, weight = torch.randn(shape, generator=random) / 10, torch.randn(shape[-1], generator=random)
    wanted = torch.empty(shape)
    for place in range(x[..., 0].numel()):
        row = x.view(-1, shape[-1])[place].double()
        wanted.view(-1, shape[-1])[place] = (row / (row.pow(2).sum() / len(row) + eps).sqrt() * weight).float()
    torch.testing.assert_close(rms_norm(x, weight, eps), wanted)


def test_in_bfloat16_it_is_summed_in_float32() -> None:
    x = torch.full((3, 4096), 100.0).bfloat16()
    x[:, 0] = 3000.0
    weight = torch.ones(4096).bfloat16()
    made = rms_norm(x, weight, 1e-6)
    wanted = x.float() * x.float().pow(2).mean(-1, keepdim=True).rsqrt()
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made.float(), wanted, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_it_is_the_models_own(dtype: torch.dtype) -> None:
    norm = RmsNorm(48, 1e-5).to(dtype).requires_grad_(False)
    random = torch.Generator().manual_seed(2)
    norm.weight.copy_(torch.randn(48, generator=random))
    x = torch.randn(5, 48, generator=random).to(dtype)
    kept = x.clone()
    torch.testing.assert_close(rms_norm(x, norm.weight, norm.eps), norm(x), rtol=1.6e-2, atol=1e-5)
    assert torch.equal(x, kept)
