"""A guided step can be captured and replayed, its backward pass too: nothing is read back or made on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from auras_ros.policies.architectures import make_policy
from auras_ros.policies.guidance import Guide, Method, guided_step
from tests.policies import tiny, tiny_flow
from tests.policies.test_capturable import OneDevice

POLICIES: dict[str, tuple[Callable[[], Any], Callable[[Any], tuple[Tensor, Tensor]]]] = {
    "ddpm of clean actions": (lambda: tiny.policy("ddpm", 100), lambda _: tiny.observed(2)),
    "ddim of noise": (lambda: make_policy("dp-cnn-small", seed=0, sampler="ddim", steps=8), lambda p: p.example(2)),
    "flow": (tiny_flow.tiny_flow, lambda _: tiny_flow.observed(2)),
}
CASES = [(kind, method) for kind in POLICIES for method in get_args(Method)]


class Step:
    """One guided step of two rows that stand at different steps, over tensors that lie on the device already."""

    def __init__(self, kind: str, method: Method, device: str) -> None:
        build, look = POLICIES[kind]
        policy = build().eval().requires_grad_(False)
        random = torch.Generator().manual_seed(0)
        noise = torch.randn(2, *policy.noise_shape, generator=random)
        shape = policy.begin(noise).sample.shape
        parts = (noise, policy.perceive(*look(policy)), torch.rand(shape, generator=random) - 0.5)
        self.noise, self.context, self.target = (part.to(device) for part in parts)
        self.weight = torch.rand(shape, generator=random).round(decimals=1).to(device)  # some are frozen, some are free
        self.index = torch.tensor([0, policy.steps - 1]).to(device)
        self.policy, self.method = policy.to(device), method

    def __call__(self) -> Tensor:
        state, guide = self.policy.begin(self.noise), Guide(self.target, self.weight)
        sample: Tensor = guided_step(self.policy, self.method, guide, state, self.context, self.index).sample
        return sample


@pytest.mark.parametrize(("kind", "method"), CASES)
def test_it_stays_on_its_device_and_reads_nothing_back(kind: str, method: Method) -> None:
    step = Step(kind, method, "meta")
    with OneDevice("meta") as watch:
        assert step().shape == step.target.shape
    assert watch.calls > 20


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "method"), CASES)
def test_a_captured_one_replays_with_other_inputs_as_the_cpu_computes_it(kind: str, method: Method) -> None:
    step, reference = Step(kind, method, "cuda"), Step(kind, method, "cpu")
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside), torch.no_grad():
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = step()
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        for name in ("noise", "target"):
            given = torch.rand(getattr(reference, name).shape, generator=random) - 0.5
            getattr(step, name).copy_(given)
            getattr(reference, name).copy_(given)
        graph.replay()
        torch.testing.assert_close(out.cpu(), reference(), rtol=1e-3, atol=1e-3)
