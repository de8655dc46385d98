"""Rotation against its formula, pair by pair, and the order of published weights.

Guards: pairs of halves taken for pairs of neighbours; a sine of the wrong sign; numbers beyond the rotated ones that
are changed; a view whose tensor is not; an order that scores depend on.
"""

from __future__ import annotations

import cmath

import pytest
import torch
from torch import Tensor

from auras_ros.kernels.rope import pair_order, rotate_
from auras_ros.models.rotary import rotate


def turns(tokens: int, rotated: int) -> Tensor:
    each = torch.rand(tokens, 1, rotated // 2, generator=torch.Generator().manual_seed(3)) * 6
    return torch.complex(each.cos(), each.sin())


@pytest.mark.parametrize(("size", "rotated"), [(8, 8), (16, 8), (6, 2)])
@pytest.mark.parametrize("tokens", [1, 5])
def test_pairs_of_neighbours_are_rotated_in_place(tokens: int, size: int, rotated: int) -> None:
    whole = torch.randn(tokens, 4, size, generator=torch.Generator().manual_seed(4))
    kept, angles = whole.clone(), turns(tokens, rotated)
    rotate_(whole[:, :3], angles)  # a view: the last head is not rotated
    assert torch.equal(whole[:, 3], kept[:, 3])
    assert torch.equal(whole[..., rotated:], kept[..., rotated:])
    for token in range(tokens):
        for head in range(3):
            for i in range(rotated // 2):
                angle = cmath.phase(complex(angles[token, 0, i]))
                one, other = kept[token, head, 2 * i : 2 * i + 2].tolist()
                turned = complex(one, other) * cmath.exp(1j * angle)
                assert complex(*whole[token, head, 2 * i : 2 * i + 2]) == pytest.approx(turned, abs=1e-5)


@pytest.mark.parametrize(("size", "rotated"), [(8, 8), (16, 8)])
def test_published_heads_in_pair_order_have_the_published_scores(size: int, rotated: int) -> None:
    """`rotary.rotate` is the published rotation: halves of the rotated numbers."""
    query, key = (torch.randn(5, 3, size, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    angles, order = turns(5, rotated), pair_order(size, rotated)
    assert sorted(order.tolist()) == list(range(size))
    both = tuple(torch.cat([part, part], -1).transpose(0, 1) for part in (angles.real, angles.imag))
    wanted = [rotate(each.transpose(0, 1)[None], both)[0].transpose(0, 1) for each in (query, key)]  # type: ignore[arg-type]
    for each in (query, key):
        each.copy_(each[..., order])
        rotate_(each, angles)
    torch.testing.assert_close((query * key).sum(-1), (wanted[0] * wanted[1]).sum(-1))
    torch.testing.assert_close(query, wanted[0][..., order])


def test_in_bfloat16_it_stays_bfloat16_and_is_rounded_once() -> None:
    half = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(5)).bfloat16()
    whole = half.float()
    rotate_(half, turns(3, 8))
    rotate_(whole, turns(3, 8))
    assert torch.equal(half, whole.bfloat16())
