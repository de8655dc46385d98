"""Automatic slicing (Auras section 5): the same output bit for bit, equal work, and refusals by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from auras_ros.models.diffusion_transformer import DiffusionTransformer
from auras_ros.models.resnet import ResNetEncoder
from auras_ros.models.vit import VitConfig, VitLayer
from auras_ros.pipeline.perception import operations, perception_stages
from auras_ros.pipeline.plan import PlanError
from auras_ros.pipeline.slicing import SliceError, slice_module


class Residual(nn.Module):
    """A value that is needed long after it was made, and a parameter that two stages read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        start = x * self.scale
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x + start * self.scale, x - y


def run(stages: list, *value: Tensor) -> tuple[Tensor, ...]:
    for stage in stages:
        value = stage(*value)
    return value


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_the_stages_compute_what_the_module_computes(stages: int) -> None:
    module, inputs = Residual().eval(), (torch.randn(3, 8), torch.randn(3, 8))
    sliced = slice_module(module, inputs, stages)
    assert len(sliced) == stages
    others = torch.randn(3, 8), torch.randn(3, 8)
    with torch.no_grad():
        for got, expected in zip(run(sliced, *others), module(*others), strict=True):
            assert torch.equal(got, expected)


def test_published_encoders_are_cut_bit_for_bit() -> None:
    encoder = ResNetEncoder(width=16).eval()
    images = torch.randn(2, 3, 84, 84)
    with torch.no_grad():
        for stages in (2, 4):
            assert torch.equal(run(slice_module(encoder, (images,), stages), images)[0], encoder(images))


def test_a_sequential_of_equal_layers_is_cut_evenly() -> None:
    module = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))
    costs = [stage.cost for stage in slice_module(module, (torch.randn(4, 16),), 4)]
    assert costs == [2 * 2 * 4 * 16 * 16] * 4


def test_work_decides_and_not_the_number_of_operations() -> None:
    """One large layer weighs as much as all the small ones: it has a stage of its own."""
    large, small = nn.Linear(64, 64), [nn.Linear(64, 16), *(nn.Linear(16, 16) for _ in range(4))]
    sliced = slice_module(nn.Sequential(large, *small), (torch.randn(1, 64),), 2)
    assert [stage.cost for stage in sliced] == [2 * 64 * 64, 2 * (64 * 16 + 4 * 16 * 16)]
    assert sliced[0].name == "Sequential[_0.._0]"
    assert sliced[1].name == "Sequential[_1.._5]"


def test_attention_is_counted_on_every_device() -> None:
    """Its kernel on a CPU is unknown to torch's counter: stages were cut as though it cost nothing, there alone."""
    tokens, width, hidden = 32, 16, 24
    config = VitConfig(8, 2, width, depth=2, heads=2, hidden=hidden)
    layer, x = VitLayer(config).eval(), torch.randn(1, tokens, width)
    linear = 2 * tokens * (4 * width * width + 2 * width * hidden)  # query, key, value, projection; two linear layers
    products = 2 * 2 * tokens * tokens * width  # queries by keys, and what comes of them by values
    assert operations([lambda x, _: layer(x)], x, x) == [linear + products]
    (whole,) = slice_module(layer, (x,), 1)
    assert linear + products <= whole.cost < linear + products + width  # an operation that costs nothing counts as one


def test_stages_share_the_parameters() -> None:
    module = Residual().eval()
    inputs = torch.randn(3, 8), torch.randn(3, 8)
    sliced = slice_module(module, inputs, 3)
    with torch.no_grad():
        module.scale.fill_(2.0)
        assert torch.equal(run(sliced, *inputs)[0], module(*inputs)[0])


class Training(nn.Module):
    """In train mode: statistics, a random number, a buffer that is another tensor after a call, its input changed."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.tally = Tally()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(self.tally(x.add_(1.0))))


class Tally(nn.ReLU):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return x


def test_slicing_leaves_no_trace() -> None:
    module, x = Training().train(), torch.randn(4, 8)
    buffers, given, drawn = dict(module.named_buffers()), x.clone(), torch.random.get_rng_state()
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    slice_module(module, (x,), 3)
    assert {"body.1.running_mean", "body.1.num_batches_tracked", "tally.calls"} <= set(buffers)
    for name, buffer in module.named_buffers():
        assert buffer is buffers[name], name
        assert torch.equal(buffer, before[name]), name
    assert module.training
    assert torch.equal(x, given)
    assert torch.equal(torch.random.get_rng_state(), drawn)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Counting(nn.Module):
    """A number is needed to the end."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.size(0)
        return torch.relu(torch.sin(x)) * rows


class Sharing(nn.Module):
    """Two values in the same memory, one of which is written to later: as copies they would not be the same."""

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.sin(x)
        first = whole[:1]
        first.add_(1.0)
        return torch.cos(whole) + first


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"x": torch.relu(x)}


@pytest.mark.parametrize(
    ("module", "stages", "said"),
    [
        (Branching(), 2, "Branching: cannot be traced: TraceError: symbolically traced variables cannot be used"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), 3, "Sequential: 3 stages, but it can be cut into 2"),
        (Counting(), 2, "but it can be cut into 1; between size and sin 'size' is needed, and is a int, not a tensor"),
        (Named(), 1, "Named: returns .*neither a tensor nor a flat tuple of tensors"),
        (nn.Bilinear(4, 4, 4), 1, "Bilinear: 1 inputs, but it takes 2: input1, input2"),
        (nn.ReLU(), 0, "ReLU: 0 stages"),
        (
            nn.Sequential(nn.ReLU(), nn.Linear(3, 4)),
            2,
            r"Sequential: '_1' fails on the example \(float32 \[2, 4\]\): RuntimeError: mat1 and mat2 shapes[^\n]*$",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(module: nn.Module, stages: int, said: str) -> None:
    with pytest.raises(SliceError, match=said):
        slice_module(module, (torch.randn(2, 4),), stages)


def test_no_cut_goes_between_values_that_share_memory() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(SliceError, match=r"'getitem' and 'sin' are needed, and share memory"):
        slice_module(Sharing(), (x,), 5)
    sliced = slice_module(Sharing(), (x,), 2)
    assert torch.equal(run(sliced, x)[0], Sharing()(x))


def test_a_transformer_is_cut_too() -> None:
    network = DiffusionTransformer(2, 20, 8, 2, layers=3, heads=2, width=16).eval()
    inputs = torch.randn(2, 8, 2), torch.tensor([3, 40]), torch.randn(2, 20)
    with torch.no_grad():
        for stages in (2, 3):
            assert torch.equal(run(slice_module(network, inputs, stages), *inputs)[0], network(*inputs))


class Blocks:
    """A policy as far as perception goes, with no blocks of its own."""

    steps, noise_shape = 1, (1,)

    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return torch.cos(torch.sin(images.flatten(1))) + state.sum()

    def begin(self, noise: Tensor) -> Tensor:
        return noise

    def step(self, state: Tensor, context: Tensor, index: Tensor) -> Tensor:
        return state

    finish = begin


class Traceable(Blocks, nn.Module):
    pass


class Untraceable(Blocks, nn.Module):
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return images if state.sum() > 0 else -images


def test_perception_without_blocks_is_traced_and_cut() -> None:
    images, state = torch.randn(2, 1, 1, 3, 2, 2), torch.randn(2, 1, 2)
    policy = Traceable()
    groups = perception_stages(policy, 3, images, state)
    assert [len(group) for group in groups] == [1, 1, 1]
    value: tuple[Tensor, ...] = (images, state)
    for group in groups:
        value = run(group, *value)
    assert torch.equal(value[0], policy.perceive(images, state))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Blocks(), "pp_perception: 2 stages, but Blocks has no perception_blocks and is no nn.Module"),
        (Untraceable(), "pp_perception: Untraceable: _Perceive: cannot be traced: TraceError"),
    ],
)
def test_perception_that_cannot_be_cut_is_a_plan_error(policy: Blocks, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        perception_stages(policy, 2, torch.randn(1, 1, 1, 3, 2, 2), torch.randn(1, 1, 2))
