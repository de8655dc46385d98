"""The encoder says where things are: x is the column, y the row, both in [-1, 1].

Guards: swapped or unscaled coordinates; a whitening that was fitted over the wrong axis.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from auras_ros.models.keypoint_encoder import KeypointEncoder


class Peaks(nn.Module):
    """Two feature maps with one sharp peak each, whatever the input, at given (row, column)."""

    def __init__(self, *places: tuple[int, int]) -> None:
        super().__init__()
        self.places = places

    def forward(self, features: Tensor) -> Tensor:
        maps = torch.zeros(len(features), len(self.places), *features.shape[-2:])
        for channel, (row, column) in enumerate(self.places):
            maps[:, channel, row, column] = 100.0
        return maps


def tiny() -> KeypointEncoder:
    torch.manual_seed(0)
    return KeypointEncoder(6, (8, 8, 8), 2, 4).eval()


@pytest.mark.parametrize("side", [24, 32, 96])
def test_shapes(side: int) -> None:
    encoder = tiny()
    images = torch.randn(3, 3, side, side)
    assert encoder(images).shape == (3, 6)
    assert encoder.raw(images).shape == (3, 6)
    assert encoder.keypoints(images).shape == (3, 4)
    assert encoder.features == 6


@torch.no_grad()
def test_soft_argmax_is_column_then_row_from_minus_one_to_one() -> None:
    encoder = tiny()
    encoder.maps, encoder.project = Peaks((0, 5), (2, 3)), nn.Identity()  # type: ignore[assignment]
    x0, x1, y0, y1 = encoder.raw(torch.randn(1, 3, 24, 24))[0].tolist()  # stride 4: maps of 6 x 6
    assert (x0, y0) == pytest.approx((1.0, -1.0))
    assert (x1, y1) == pytest.approx((3 / 5 * 2 - 1, 2 / 5 * 2 - 1))


@torch.no_grad()
def test_whitening_centres_and_scales_each_feature() -> None:
    encoder, images = tiny(), torch.randn(64, 3, 24, 24)
    encoder.maps.weight *= 50  # random maps are nearly flat: let the features vary
    assert torch.equal(encoder(images), encoder.raw(images))
    encoder.fit_whitening(encoder.raw(images))
    features = encoder(images)
    torch.testing.assert_close(features.mean(0), torch.zeros(6), rtol=0, atol=1e-4)
    spread = features.std(0)
    assert ((spread > 0.5) & (spread < 1.001)).all(), spread


@torch.no_grad()
def test_whitening_is_saved_with_the_weights() -> None:
    encoder, copy, images = tiny(), KeypointEncoder(6, (8, 8, 8), 2, 4), torch.randn(8, 3, 24, 24)
    encoder.fit_whitening(encoder.raw(images))
    copy.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(copy(images), encoder(images))


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    encoder, images = tiny(), torch.randn(3, 3, 24, 24)
    together = encoder(images)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], encoder(images[row : row + 1]))
