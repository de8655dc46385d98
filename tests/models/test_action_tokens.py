"""Ids and actions by hand-computed values, and against the published arithmetic in numpy.

Guards: bins counted from the other end; edges taken for centres; the padded vocabulary; a channel that is brought to
physical units although the mask says that it never left them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.models.action_tokens import ActionStatistics, ActionTokens, OpenVlaTokens, Rt2Tokens

STATISTICS = ActionStatistics((-0.5, 2.0, 0.0), (0.5, 6.0, 1.0), (True, True, False))
VIMA = Rt2Tokens((0.25, -0.5, 0.25, -0.5, -180.0), (0.75, 0.5, 0.75, 0.5, 180.0))


def openvla() -> OpenVlaTokens:
    return OpenVlaTokens(STATISTICS)


@pytest.mark.parametrize(
    ("identifier", "centre"),
    [
        (31999, -254 / 255),  # number 1: the lowest bin, -1 to -253/255
        (31998, -252 / 255),
        (31872, 0.0),  # number 128: the middle bin, -1/255 to 1/255
        (31871, 2 / 255),
        (31745, 254 / 255),  # number 255: the highest bin
        (31744, 254 / 255),  # number 256 has no bin above it
    ],
)
def test_openvla_by_hand(identifier: int, centre: float) -> None:
    got = openvla().decode(torch.full((3,), identifier))
    expected = [0.5 * centre, 4.0 + 2.0 * centre, centre]
    assert got.tolist() == pytest.approx(expected, abs=1e-12)
    assert got.dtype == torch.float64


def test_openvla_is_the_published_arithmetic() -> None:
    """Kim et al. 2024: edges by linspace, centres between neighbours, numbers clipped; q01 and q99 where masked."""
    ids = np.arange(31000, 32064)
    edges = np.linspace(-1, 1, 256)
    centres = (edges[:-1] + edges[1:]) / 2
    normalised = centres[np.clip(32000 - ids - 1, 0, 254)][:, None]
    low, high = np.array(STATISTICS.q01), np.array(STATISTICS.q99)
    expected = np.where(STATISTICS.mask, 0.5 * (normalised + 1) * (high - low) + low, normalised)
    got = openvla().decode(torch.from_numpy(ids)[:, None].expand(-1, 3))
    np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=1e-14)


def test_openvla_encodes_as_published() -> None:
    """numpy's digitize over the same edges, at the edges themselves and beside them."""
    edges = np.linspace(-1, 1, 256)
    near = np.concatenate([edges, np.nextafter(edges, 2), np.nextafter(edges, -2), np.linspace(-1.5, 1.5, 777)])
    tokens = OpenVlaTokens(ActionStatistics((-1.0,), (1.0,), (False,)))
    expected = 32000 - np.digitize(np.clip(near, -1, 1), edges)
    assert np.array_equal(tokens.encode(torch.from_numpy(near)[:, None])[:, 0].numpy(), expected)


def test_openvla_encodes_in_physical_units() -> None:
    actions = torch.tensor([[-0.5, 2.0, -1.0], [0.0, 4.0, 0.0], [0.5, 6.0, 1.0], [9.0, -9.0, 9.0]])
    assert openvla().encode(actions).tolist() == [[31999] * 3, [31872] * 3, [31744] * 3, [31744, 31999, 31744]]


@pytest.mark.parametrize("tokens", [openvla(), VIMA], ids=["openvla", "rt2"])
def test_every_id_comes_back_from_its_action(tokens: OpenVlaTokens | Rt2Tokens) -> None:
    channels = 3 if isinstance(tokens, OpenVlaTokens) else 5
    ids = torch.tensor(list(tokens.ids))[:, None].expand(-1, channels)
    again = tokens.encode(tokens.decode(ids))
    if isinstance(tokens, OpenVlaTokens):
        ids = ids.clamp_min(31745)  # 31744 decodes like 31745
    assert torch.equal(again, ids)


@pytest.mark.parametrize(("tokens", "channels"), [(openvla(), 3), (VIMA, 5)], ids=["openvla", "rt2"])
def test_an_id_that_is_no_actions_becomes_the_nearest(tokens: OpenVlaTokens | Rt2Tokens, channels: int) -> None:
    first, last = tokens.ids.start, tokens.ids.stop - 1
    ids = torch.tensor([0, first - 1, first, last, last + 1, 40000])
    values = tokens.decode(ids[:, None].expand(-1, channels))
    assert torch.equal(values[:2], values[2].expand(2, -1))
    assert torch.equal(values[4:], values[3].expand(2, -1))


def test_rt2_by_hand() -> None:
    ids = torch.tensor([[31000] * 5, [31255] * 5, [31051] * 5])  # shares 0, 1 and 51 / 255 = 0.2
    expected = [[0.25, -0.5, 0.25, -0.5, -180.0], [0.75, 0.5, 0.75, 0.5, 180.0], [0.35, -0.3, 0.35, -0.3, -108.0]]
    for got, row in zip(VIMA.decode(ids).tolist(), expected, strict=True):
        assert got == pytest.approx(row, abs=1e-12)
    actions = torch.tensor([[0.35, -0.3, 0.3509, -0.3019, 500.0]], dtype=torch.float64)  # 51.459 and 50.5155 of 255
    assert VIMA.encode(actions).tolist() == [[31051, 31051, 31051, 31051, 31255]]


def test_the_shape_before_the_channels_is_free() -> None:
    ids = torch.full((2, 4, 3), 31872)
    assert openvla().decode(ids).shape == (2, 4, 3)
    assert openvla().encode(torch.zeros(3)).shape == (3,)


@pytest.mark.parametrize("tokens", [openvla(), VIMA], ids=["openvla", "rt2"])
@pytest.mark.parametrize("way", ["decode", "encode"])
def test_another_number_of_channels_is_refused(tokens: ActionTokens, way: str) -> None:
    """One id would otherwise be broadcast to every channel."""
    with pytest.raises(ValueError, match=r"action tokens: shape \[2, 1\], expected \[\.\.\., [35]\]"):
        getattr(tokens, way)(torch.full((2, 1), 31872))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"q01": [0.0, 1.0], "q99": [1.0, 1.0]}, r"q01\[1\]: 1.0 is not below q99\[1\], 1.0"),
        ({"q01": [2.0], "q99": [1.0]}, r"q01\[0\]: 2.0 is not below q99\[0\], 1.0"),
        ({"q01": [math.nan], "q99": [1.0]}, r"q01\[0\]: nan is not finite"),
        ({"q01": [0.0, 0.0], "q99": [1.0, math.inf]}, r"q99\[1\]: inf is not finite"),
        ({"q01": [0.0], "q99": [math.nan], "mask": [False]}, r"q99\[0\]: nan is not finite"),
        ({"q01": [0.0, 0.0], "q99": [1.0]}, "q99: 1 numbers, but q01 has 2"),
        ({"q01": [0.0], "q99": [1.0], "mask": [True, True]}, "mask: 2 numbers, but q01 has 1"),
        ({"q01": [0.0], "q99": [1.0], "mask": [1]}, r"mask: \[1\] is not a list of true and false"),
        ({"q01": [], "q99": []}, "q01: is empty"),
        ({"q99": [1.0]}, "q01: missing"),
        ({"q01": [0.0], "q99": ["1"]}, r"q99: \['1'\] is not a list of numbers"),
        ({"q01": 0.0, "q99": [1.0]}, "q01: 0.0 is not a list of numbers"),
    ],
)
def test_statistics_that_make_no_sense_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"action statistics: {said}"):
        ActionStatistics.of(given)


def test_a_channel_that_was_not_normalised_may_have_any_order() -> None:
    made = ActionStatistics.of({"q01": [0.0, 1], "q99": [1.0, 1], "mask": [True, False]})
    assert made == ActionStatistics((0.0, 1.0), (1.0, 1.0), (True, False))
    assert ActionStatistics.of({"q01": [0.0], "q99": [1.0]}).mask == (True,)


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        ((0.0,), (0.0,), r"lower\[0\]: 0.0 is not below upper\[0\], 0.0"),
        ((0.0, math.nan), (1.0, 1.0), r"lower\[1\]: nan is not below"),
        ((0.0,), (math.inf,), r"lower\[0\]: 0.0 is not below upper\[0\], inf"),
        ((0.0,), (1.0, 2.0), "1 lower bounds and 2 upper ones"),
        ((), (), "0 lower bounds"),
    ],
)
def test_ranges_that_make_no_sense_are_refused_by_name(lower: Any, upper: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"rt2 tokens: {said}"):
        Rt2Tokens(lower, upper)


def test_fewer_bins_than_256() -> None:
    codec = Rt2Tokens([0.0], [10.0], first=5, bins=11)
    assert codec.ids == range(5, 16)
    assert codec.encode(torch.tensor([3.2])).item() == 8
    assert codec.decode(torch.tensor([8])).item() == 3.0
    assert codec.decode(torch.tensor([99])).item() == 10.0
    assert codec.to("cpu").decode(torch.tensor([8])).item() == 3.0
    with pytest.raises(ValueError, match="bins: 1 is less than 2"):
        Rt2Tokens([0.0], [10.0], bins=1)
