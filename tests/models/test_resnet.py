"""ResNet18 has torchvision's parameters, and computes what they say; the softmax says where things are.

Guards: a name or a stride that published weights would not fit; a group size of another kind; x and y swapped.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.models.resnet import FrozenBatchNorm, ResNet18, ResNetEncoder, SpatialSoftmax

PARAMETERS = 11_689_512 - 513_000  # torchvision's resnet18 without its classifier of 512 x 1000 + 1000


def torchvision_names() -> list[str]:
    """The parameters of torchvision.models.resnet18 in their order, without `fc`."""
    names = ["conv1.weight", "bn1.weight", "bn1.bias"]
    for layer in range(1, 5):
        for block in range(2):
            at = f"layer{layer}.{block}"
            for i in (1, 2):
                names += [f"{at}.conv{i}.weight", f"{at}.bn{i}.weight", f"{at}.bn{i}.bias"]
            if layer > 1 and block == 0:
                names += [f"{at}.downsample.{part}" for part in ("0.weight", "1.weight", "1.bias")]
    return names


def tiny() -> ResNetEncoder:
    torch.manual_seed(0)
    return ResNetEncoder(features=6, width=16, keypoints=4).eval()


def naive_backbone(w: dict[str, Tensor], images: Tensor) -> Tensor:
    """He et al. 2016, figure 3 and table 1, written from the parameters' names: every stride is here a second time."""

    def norm(x: Tensor, name: str) -> Tensor:
        return F.group_norm(x, x.shape[1] // 16, w[f"{name}.weight"], w[f"{name}.bias"])

    x = F.conv2d(images, w["conv1.weight"], stride=2, padding=3)
    x = F.max_pool2d(norm(x, "bn1").clamp_min(0), 3, 2, 1)
    for layer, first_stride in zip(range(1, 5), (1, 2, 2, 2), strict=True):
        for block in range(2):
            at, stride = f"layer{layer}.{block}", first_stride if block == 0 else 1
            hidden = norm(F.conv2d(x, w[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").clamp_min(0)
            hidden = norm(F.conv2d(hidden, w[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
            if f"{at}.downsample.0.weight" in w:
                x = norm(F.conv2d(x, w[f"{at}.downsample.0.weight"], stride=stride), f"{at}.downsample.1")
            x = (hidden + x).clamp_min(0)
    return x


def test_names_order_and_number_of_parameters_are_torchvisions() -> None:
    with torch.device("meta"):
        backbone = ResNet18()
    assert list(backbone.state_dict()) == torchvision_names()
    assert sum(p.numel() for p in backbone.parameters()) == PARAMETERS
    shapes = {name: tuple(p.shape) for name, p in backbone.named_parameters()}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer3.0.downsample.0.weight"] == (256, 128, 1, 1)
    assert shapes["layer4.1.conv2.weight"] == (512, 512, 3, 3)


def test_every_norm_has_groups_of_sixteen_channels() -> None:
    norms = [m for m in ResNet18(32).modules() if isinstance(m, torch.nn.GroupNorm)]
    assert len(norms) == 20
    assert {m.num_channels // m.num_groups for m in norms} == {16}


@torch.no_grad()
@pytest.mark.parametrize("side", [32, 57])
def test_backbone_equals_the_network_written_from_its_names(side: int) -> None:
    backbone = tiny().backbone.double()
    for name, parameter in backbone.named_parameters():
        if "bn" in name or "downsample.1" in name:
            parameter.copy_(torch.rand(parameter.shape, generator=torch.Generator().manual_seed(len(name))) + 0.5)
    images = torch.randn(2, 3, side, side, dtype=torch.float64)
    got = backbone(images)
    assert got.shape == (2, 128, math.ceil(side / 32), math.ceil(side / 32))
    torch.testing.assert_close(got, naive_backbone(dict(backbone.named_parameters()), images))


@torch.no_grad()
def test_spatial_softmax_equals_the_expectation_written_out() -> None:
    torch.manual_seed(0)
    pool, features = SpatialSoftmax(5, 3), torch.randn(2, 5, 2, 4)
    got = pool(features)
    weight, bias = pool.nets.weight[:, :, 0, 0], pool.nets.bias
    for n in range(2):
        for k in range(3):
            score = {
                (r, c): math.exp(float(bias[k] + sum(weight[k, i] * features[n, i, r, c] for i in range(5))))
                for r in range(2)
                for c in range(4)
            }
            total = sum(score.values())
            x = sum(s * (-1 + 2 * c / 3) for (_, c), s in score.items()) / total
            y = sum(s * (-1 + 2 * r) for (r, _), s in score.items()) / total
            assert got[n, 2 * k : 2 * k + 2].tolist() == pytest.approx([x, y], abs=1e-5)


@pytest.mark.parametrize("pool", ["spatial_softmax", "average"])
def test_either_pool_gives_the_features_asked_for(pool: str) -> None:
    encoder = ResNetEncoder(features=6, width=16, pool=pool, keypoints=4)
    assert encoder(torch.randn(3, 3, 40, 32)).shape == (3, encoder.features)
    assert encoder.project.in_features == {"spatial_softmax": 8, "average": 128}[pool]


@torch.no_grad()
def test_blocks_one_after_another_are_the_encoder() -> None:
    encoder, images = tiny(), torch.randn(2, 3, 40, 40)
    carried: tuple[Tensor, ...] = (images,)
    for _, block in encoder.blocks():
        carried = block(*carried)
    assert torch.equal(carried[0], encoder(images))
    assert [name for name, _ in encoder.blocks()][:3] == ["stem", "layer1.0", "layer1.1"]
    assert len(encoder.blocks()) == 10


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    """What group normalisation is there for: batch statistics would mix the rows."""
    encoder, images = tiny(), torch.randn(3, 3, 40, 40)
    together = encoder(images)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], encoder(images[row : row + 1]))


def test_a_width_or_a_pool_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="resnet18: width: 24 is not a multiple of 16"):
        ResNetEncoder(width=24)
    with pytest.raises(ValueError, match="resnet18: pool: 'max' is not known; known: spatial_softmax, average"):
        ResNetEncoder(pool="max")


@torch.no_grad()
def test_frozen_batch_normalisation_is_torchs_in_evaluation() -> None:
    theirs, ours = torch.nn.BatchNorm2d(4).eval(), FrozenBatchNorm(4)
    for name, values in theirs.state_dict(keep_vars=True).items():
        if values.is_floating_point():
            values.uniform_(0.2, 2.0)
            getattr(ours, name).copy_(values)
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(ours(x), theirs(x))


@torch.no_grad()
def test_widths_depths_and_activation_are_those_asked_for() -> None:
    encoder = ResNetEncoder(
        features=6, width=[4, 8, 8, 16], keypoints=4, depth=[1, 2, 1, 3], norm="batch", activation="relu"
    )
    names = [name for name, _ in encoder.backbone.blocks()]
    assert names == ["stem", "layer1.0", "layer2.0", "layer2.1", "layer3.0", "layer4.0", "layer4.1", "layer4.2"]
    assert [getattr(encoder.backbone, f"layer{i}")[-1].conv2.out_channels for i in (1, 2, 3, 4)] == [4, 8, 8, 16]
    assert not any(isinstance(module, torch.nn.GroupNorm) for module in encoder.modules())
    images = torch.randn(20, 3, 40, 40)
    got, linear = encoder.eval()(images), encoder.project(encoder.pool(encoder.backbone(images)))
    assert torch.equal(got, linear.clamp_min(0))
    assert (linear < 0).any()


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"width": [16, 32]}, r"width: \[16, 32\] is not one for each of 4 layers"),
        ({"depth": [2, 2]}, r"depth: \[2, 2\] is not one for each of 4 layers"),
        ({"norm": "layer"}, "norm: 'layer' is not known; known: group, batch"),
        ({"activation": "gelu"}, "activation: 'gelu' is not known; known: none, relu"),
    ],
)
def test_sizes_that_do_not_exist_are_refused_by_name(sizes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=f"resnet18: {said}"):
        ResNetEncoder(**sizes)  # type: ignore[arg-type]
