"""Rotation against its formula, pair by pair.

Guards: pairs of neighbours taken for pairs of halves; a sine of the wrong sign; numbers beyond the rotated ones that
are changed; a view whose tensor is not.
"""

from __future__ import annotations

import math

import pytest
import torch

from auras_ros.kernels.rope import rotate_


def angles(tokens: int, rotated: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """As `FusedLlama` gives them: both halves alike, the first half of the sines negative."""
    each = torch.rand(tokens, rotated // 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 6
    cosine, sine = each.cos(), each.sin()
    return torch.cat([cosine, cosine], -1)[:, None].to(dtype), torch.cat([-sine, sine], -1)[:, None].to(dtype)


@pytest.mark.parametrize(("size", "rotated"), [(8, 8), (16, 8), (6, 2)])
@pytest.mark.parametrize("tokens", [1, 5])
def test_pairs_of_halves_are_rotated_in_place(tokens: int, size: int, rotated: int) -> None:
    whole = torch.randn(tokens, 4, size, generator=torch.Generator().manual_seed(4))
    kept, (cosine, sine), half = whole.clone(), angles(tokens, rotated), rotated // 2
    rotate_(whole[:, :3], (cosine, sine))  # a view: the last head is not rotated
    assert torch.equal(whole[:, 3], kept[:, 3])
    assert torch.equal(whole[..., rotated:], kept[..., rotated:])
    for token in range(tokens):
        for head in range(3):
            for i in range(half):
                angle = math.atan2(float(sine[token, 0, i + half]), float(cosine[token, 0, i]))
                one, other = float(kept[token, head, i]), float(kept[token, head, i + half])
                turned = (
                    one * math.cos(angle) - other * math.sin(angle),
                    other * math.cos(angle) + one * math.sin(angle),
                )
                got = float(whole[token, head, i]), float(whole[token, head, i + half])
                assert got == pytest.approx(turned, abs=1e-5)


def test_in_bfloat16_it_stays_bfloat16() -> None:
    whole = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(5))
    half = whole.bfloat16()
    rotate_(half, angles(3, 8, torch.bfloat16))
    rotate_(whole, angles(3, 8))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, atol=0.05, rtol=0.02)
