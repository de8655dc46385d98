"""Every method of a policy can be captured and replayed: nothing in it reads a value back or leaves its device.

Guards: an .item(), a branch on a value, a table or an index made on the host, which a CUDA graph would refuse, or
would freeze at the values of the capture. Where there is no GPU, "meta" tensors stand for one: they have no values.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from auras_ros.policies.architectures import make_policy
from auras_ros.policies.denoising import DenoisingState, make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.policy import generate
from tests.policies import tiny

NAMES = ["dp", "dp-plus", "dp-cnn", "dp-cnn-plus", "dp-small", "dp-cnn-small"]
CASES = [(name, sampler, steps) for name in NAMES for sampler, steps in (("ddpm", 100), ("ddim", 8))]


class OneDevice(TorchDispatchMode):
    """Fails on any tensor, in or out, that lies elsewhere; a value that is read back fails by itself on meta."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.calls = device, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs or {}, out)):
            if isinstance(leaf, Tensor) and leaf.device.type != self.device:
                raise AssertionError(f"{func} on {leaf.device.type}, expected {self.device}")
        self.calls += 1
        return out


def keypoint(sampler: str, steps: int) -> DiffusionPolicy:
    return tiny.policy(sampler, steps)


def whole_way(policy: DiffusionPolicy, images: Tensor, state: Tensor, noise: Tensor, index: Tensor) -> Tensor:
    context = policy.perceive(images, state)
    return policy.finish(policy.step(policy.begin(noise), context, index))


def given_to(policy: DiffusionPolicy, shapes: tuple[tuple[int, ...], tuple[int, ...]], device: str) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(2, *policy.noise_shape, generator=random)
    tensors = [*(torch.randn(2, *shape, generator=random) for shape in shapes), noise]
    return [t.to(device) for t in (*tensors, torch.tensor([0, policy.steps - 1]))]


@pytest.mark.parametrize(("name", "sampler", "steps"), CASES)
def test_published_policies_stay_on_their_device(name: str, sampler: str, steps: int) -> None:
    with torch.device("meta"):
        policy = make_policy(name, seed=0, sampler=sampler, steps=steps)  # type: ignore[arg-type]
    shape = policy.architecture
    assert shape is not None
    shapes = (shape.history, shape.cameras, 3, *shape.image_px), (shape.history, shape.state)
    given = given_to(policy, shapes, "meta")
    with OneDevice("meta") as watch:
        assert whole_way(policy, *given).shape == (2, shape.horizon, shape.actions)
    assert watch.calls > 100


@pytest.mark.parametrize(("sampler", "steps"), [("ddpm", 100), ("ddim", 3)])
def test_a_policy_that_is_moved_takes_its_tables_and_bounds_along(sampler: str, steps: int) -> None:
    policy = keypoint(sampler, steps).to("meta")
    given = given_to(policy, ((2, 1, 3, tiny.SIDE, tiny.SIDE), (2, 2)), "meta")
    with OneDevice("meta"):
        assert whole_way(policy, *given).dtype == torch.float64
        if sampler == "ddim":  # a hundred steps more would say no more
            assert generate(policy, given[2], policy.perceive(*given[:2])).shape == (2, 8, 2)


def test_the_watch_itself_finds_a_host_tensor_and_a_value_read_back() -> None:
    here, there = torch.zeros(2), torch.zeros(2, device="meta")
    with pytest.raises(AssertionError, match=r"_to_copy.* on cpu, expected meta"), OneDevice("meta"):
        here.to("meta")
    with pytest.raises(RuntimeError, match="meta"), OneDevice("meta"):
        there.sum().item()


@pytest.mark.parametrize("precision", ["half", "bfloat16"])
def test_bounds_keep_their_precision(precision: str) -> None:
    parts, bounds = keypoint("ddim", 4), tiny.trained(3, (0.1, -3.3), (512.7, 1e4 + 0.1))
    policy = DiffusionPolicy(parts.encoder, parts.network, parts.sampler, bounds)
    sample = torch.tensor([-1.0, 0.25, 1.0])[None, :, None].expand(1, 3, 2)
    before = policy.finish(DenoisingState(sample, sample))
    getattr(policy, precision)()
    assert torch.equal(policy.finish(DenoisingState(sample, sample)), before)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "sampler"), [("dp", "ddpm"), ("dp-cnn-small", "ddpm"), ("dp-small", "ddim")])
def test_a_captured_step_replays_with_other_inputs(name: str, sampler: str) -> None:
    """One graph, other rows, other steps: what it gives is what a plain call gives."""
    policy = make_policy(name, seed=0, sampler=sampler, steps=100).to("cuda")  # type: ignore[arg-type]
    shape = policy.architecture
    assert shape is not None
    shapes = (shape.history, shape.cameras, 3, *shape.image_px), (shape.history, shape.state)
    static = given_to(policy, shapes, "cuda")
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            whole_way(policy, *static)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = whole_way(policy, *static)
    for index in ([3, 98], [99, 0]):
        for tensor in static[:3]:
            tensor.normal_()
        static[3].copy_(torch.tensor(index))
        graph.replay()
        torch.testing.assert_close(out, whole_way(policy, *static), rtol=1e-3, atol=1e-3)


def test_epsilon_policy_equals_the_loop_written_out() -> None:
    """DiffusionPolicy hands the prediction, the right draw and each row's timestep to the sampler."""
    policy = make_policy("dp-small", seed=0, steps=40)
    images, state = policy.example(1, torch.Generator().manual_seed(0))
    context, noise = policy.perceive(images, state), torch.randn(1, *policy.noise_shape)
    table, running = make_sampler("ddpm", 40, "epsilon", 40), policy.begin(noise)
    sample = noise[:, 0]
    for i in range(40):
        index = torch.tensor([i])
        with torch.no_grad():
            predicted = policy.network(sample, torch.tensor([39 - i]), context)
        draw = noise[:, i + 1] if i < 39 else torch.zeros_like(sample)
        sample = table.step(sample, predicted, draw, index)
        running = policy.step(running, context, index)
        assert torch.equal(running.sample, sample)
