"""One encoder for each camera: each sees its own camera's pictures, whole or in blocks."""

from __future__ import annotations

import pytest
import torch

from auras_ros.policies.networks import PerCamera, build_encoder

DESCRIBED = {"type": "resnet18", "features": 6, "width": [4, 4, 4, 8], "norm": "batch", "keypoints": 3, "separate": 2}


@torch.no_grad()
def test_each_camera_has_its_own_encoder() -> None:
    encoder = build_encoder(DESCRIBED, cameras=2)
    assert isinstance(encoder, PerCamera)
    images = torch.randn(3, 2, 3, 40, 40)
    got = encoder.eval()(images.flatten(0, 1)).unflatten(0, (3, 2))
    for i, each in enumerate(encoder.each):
        torch.testing.assert_close(got[:, i], each(images[:, i]))
    assert not torch.allclose(encoder.each[0](images[:, 1]), got[:, 1])
    carried = (images.flatten(0, 1),)
    for _, block in encoder.blocks():
        carried = block(*carried)
    assert torch.equal(carried[0], got.flatten(0, 1))
    assert build_encoder(encoder.sizes, cameras=2).sizes == encoder.sizes


@pytest.mark.parametrize("cameras", [1, 3, None])
def test_as_many_encoders_as_cameras(cameras: int | None) -> None:
    with pytest.raises(ValueError, match=rf"encoder \(resnet18\): separate: 2, but there are {cameras} cameras"):
        build_encoder(DESCRIBED, cameras=cameras)
