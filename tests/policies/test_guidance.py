"""Real-time chunking, one step at a time: weights of zero change nothing, weights of one freeze, and in between the
update is the published one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, get_args

import pytest
import torch
from torch import Tensor

from auras_ros.policies.act import ActPolicy
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.denoising import make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.flow_sampler import FlowSampler
from auras_ros.policies.guidance import MOST_GAIN, GuidablePolicy, Guide, Method, guided_step
from tests.policies import tiny, tiny_flow

SAMPLERS = {
    "ddim of clean actions": lambda: make_sampler("ddim", 5),
    "ddim of noise": lambda: make_sampler("ddim", 5, "epsilon", spacing="leading"),
    "ddim, not corrected": lambda: make_sampler("ddim", 5, "sample", corrected=False),
    "ddpm of clean actions": lambda: make_sampler("ddpm", 10, "sample", 10),
    "ddpm of noise": lambda: make_sampler("ddpm", 10, "epsilon", 10),
    "flow of a velocity": lambda: FlowSampler(5),
}


def diffusion(sampler: str) -> DiffusionPolicy:
    policy = tiny.policy()
    policy.sampler = SAMPLERS[sampler]()
    return policy


POLICIES: dict[str, Callable[[], GuidablePolicy]] = {
    **{name: (lambda name=name: diffusion(name)) for name in SAMPLERS},  # type: ignore[misc]
    "flow": tiny_flow.tiny_flow,
}


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> GuidablePolicy:
    return POLICIES[request.param]()


def seen(policy: Any, batch: int) -> Tensor:
    """A context of random observations."""
    if isinstance(policy, FlowMatchingPolicy):
        context: Tensor = policy.perceive(*policy.example(batch, torch.Generator().manual_seed(1)))
        return context
    return cast("Tensor", policy.perceive(*tiny.observed(batch)))


def generated(policy: Any, method: Method | None, guide: Guide, batch: int = 2) -> tuple[Tensor, Tensor]:
    """(actions, the network's) of all steps, each row guided by its own; without a method by `step` alone."""
    noise = torch.randn((batch, *policy.noise_shape), generator=torch.Generator().manual_seed(3))
    context, state = seen(policy, batch), policy.begin(noise)
    for i in range(policy.steps):
        index = torch.full((batch,), i)
        if method is None:
            state = policy.step(state, context, index)
        else:
            state = guided_step(policy, method, guide, state, context, index)
    return policy.finish(state), state.sample


def shape_of(policy: Any, batch: int = 2) -> tuple[int, ...]:
    return tuple(policy.begin(torch.zeros((batch, *policy.noise_shape))).sample.shape)


def random_target(policy: Any) -> Tensor:
    return torch.rand(shape_of(policy), generator=torch.Generator().manual_seed(5)) - 0.5


@pytest.mark.parametrize("method", get_args(Method))
def test_weights_of_zero_are_the_plain_step_to_the_bit(policy: GuidablePolicy, method: Method) -> None:
    target = random_target(policy)
    free = generated(policy, method, Guide(target, torch.zeros_like(target)))
    plain = generated(policy, None, Guide(target, target))
    assert torch.equal(free[0], plain[0])


@pytest.mark.parametrize("method", get_args(Method))
def test_frozen_actions_come_out_as_they_are_and_free_ones_do_not(policy: GuidablePolicy, method: Method) -> None:
    target = random_target(policy)
    weight = torch.zeros_like(target)
    weight[:, :3] = 1.0
    _, sample = generated(policy, method, Guide(target, weight))
    assert torch.allclose(sample[:, :3], target[:, :3], atol=1e-5)
    assert not torch.allclose(sample[:, 3:], target[:, 3:], atol=1e-2)


@pytest.mark.parametrize("method", get_args(Method))
def test_rows_are_guided_each_by_its_own(policy: GuidablePolicy, method: Method) -> None:
    target = random_target(policy)
    weight = torch.zeros_like(target)
    weight[0, :4] = 0.7  # the other row is free
    guided, _ = generated(policy, method, Guide(target, weight))
    plain, _ = generated(policy, None, Guide(target, weight))
    assert not torch.allclose(guided[0], plain[0], rtol=0, atol=1e-3)
    assert torch.allclose(guided[1], plain[1], rtol=1e-5, atol=1e-4)


def test_the_mean_by_weight_is_what_the_last_inpainting_step_leaves(policy: GuidablePolicy) -> None:
    """With nothing to come after it, the last step's expected actions are the chunk."""
    target, batch = random_target(policy), 2
    weight = torch.full_like(target, 0.25)
    state = policy.begin(torch.randn((batch, *policy.noise_shape), generator=torch.Generator().manual_seed(3)))
    context, last = seen(policy, batch), torch.full((batch,), policy.steps - 1)
    clean = policy.clean(state, policy.predict(state, context, last), last)
    after = guided_step(policy, "inpaint", Guide(target, weight), state, context, last)
    assert torch.allclose(after.sample, clean + 0.25 * (target - clean), atol=1e-5)


class Linear(torch.nn.Module):
    """velocity = M x over the horizon, so that every Jacobian is known."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, sample: Tensor, *_: Tensor) -> Tensor:
        return torch.einsum("ij,bja->bia", self.matrix, sample)


@pytest.mark.parametrize("number", [0, 3, 9])
def test_a_flow_step_is_the_published_update(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Black et al. 2025 count time from noise, 0, to data, 1, and the velocity up to data; written out in float64."""
    policy = tiny_flow.tiny_flow()
    horizon, width = policy.noise_shape
    matrix = torch.randn((horizon, horizon), generator=torch.Generator().manual_seed(7)) / horizon
    monkeypatch.setattr(policy.prefix.model, "velocity", Linear(matrix).forward)
    sample = torch.randn((2, horizon, width), generator=torch.Generator().manual_seed(8))
    target, weight = random_target(policy), torch.rand(shape_of(policy), generator=torch.Generator().manual_seed(9))
    state = policy.begin(sample)
    after = guided_step(policy, "rtc", Guide(target, weight * 0.9), state, torch.zeros(2, 1), torch.full((2,), number))

    x, y, w = sample.double(), target.double(), (weight * 0.9).double()
    t, up = number / policy.steps, -matrix.double()
    expected = x + (1 - t) * torch.einsum("ij,bja->bia", up, x)
    jacobian = torch.eye(horizon, dtype=torch.float64) + (1 - t) * up
    pull = torch.einsum("ij,bia->bja", jacobian, w * (y - expected))
    square = (1 - t) ** 2 / (t**2 + (1 - t) ** 2)
    gain = MOST_GAIN if t == 0 else min(MOST_GAIN, (1 - t) / (t * square))
    velocity = torch.einsum("ij,bja->bia", up, x) + gain * pull
    assert torch.allclose(after.sample.double(), x + velocity / policy.steps, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_denoising_step_pulls_as_flow_does_on_the_same_path(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noisy sample divided by signal + noise lies on the straight path; written out in float64."""
    policy = diffusion("ddim of clean actions")
    policy.sampler.clip = math.inf
    horizon = policy.architecture.horizon
    matrix = torch.randn((horizon, horizon), generator=torch.Generator().manual_seed(7)) / horizon
    monkeypatch.setattr(policy, "network", Linear(matrix))
    sample = torch.randn((2, horizon, 2), generator=torch.Generator().manual_seed(8))
    target, weight = random_target(policy), torch.rand(shape_of(policy), generator=torch.Generator().manual_seed(9))
    state, index = policy.begin(sample[:, None]), torch.full((2,), number)
    after = guided_step(policy, "rtc", Guide(target, weight * 0.9), state, torch.zeros(2, 1), index)

    x, y, w, m = sample.double(), target.double(), (weight * 0.9).double(), matrix.double()
    alpha = 1 / policy.sampler.clean_of_noisy[number].double() ** 2
    signal, noise = alpha.sqrt(), (1 - alpha).sqrt()
    t = (signal / (signal + noise)).item()
    expected = torch.einsum("ij,bja->bia", m, x)
    pull = (signal + noise) * torch.einsum("ij,bia->bja", m, w * (y - expected))
    square = (1 - t) ** 2 / (t**2 + (1 - t) ** 2)
    clean = expected + (1 - t) * min(MOST_GAIN, (1 - t) / (t * square)) * pull
    to_clean, to_noisy = policy.sampler.to_clean[number].double(), policy.sampler.to_noisy[number].double()
    assert torch.allclose(after.sample.double(), to_clean * clean + to_noisy * x, rtol=1e-4, atol=1e-5)


def test_free_actions_follow_the_held_ones_by_rtc_and_not_by_inpainting(policy: GuidablePolicy) -> None:
    """One step, in which inpainting moves what it has a weight for and nothing else."""
    target, batch = random_target(policy), 2
    weight = torch.zeros_like(target)
    weight[:, :3] = 0.9
    state = policy.begin(torch.randn((batch, *policy.noise_shape), generator=torch.Generator().manual_seed(3)))
    context, index = seen(policy, batch), torch.full((batch,), policy.steps // 2)
    plain = policy.step(state, context, index).sample[:, 3:]
    inpainted = guided_step(policy, "inpaint", Guide(target, weight), state, context, index).sample[:, 3:]
    followed = guided_step(policy, "rtc", Guide(target, weight), state, context, index).sample[:, 3:]
    assert torch.equal(inpainted, plain)
    assert not torch.allclose(followed, plain, rtol=0, atol=1e-6)


def test_guided_actions_keep_the_sampler_s_bounds() -> None:
    policy = diffusion("ddim of clean actions")
    target = torch.full(shape_of(policy), 1.7)
    _, sample = generated(policy, "inpaint", Guide(target, torch.ones_like(target)))
    assert sample.max() == 1.0


def test_placed_is_finish_undone(policy: GuidablePolicy) -> None:
    actions, sample = generated(policy, None, Guide(torch.zeros(()), torch.zeros(())))
    placed = policy.place(actions)
    used = policy.place(torch.ones_like(actions), normalise=False)
    assert torch.allclose(placed, sample * used, atol=1e-5)
    assert set(used.unique().tolist()) <= {0.0, 1.0}


def test_what_is_no_channel_and_no_action_of_the_chunk_is_padding() -> None:
    """A network of more actions than the robot, of a horizon longer than the chunk: neither is guided."""
    flow = FlowMatchingPolicy(tiny_flow.tiny_flow().prefix, replace(tiny_flow.TRAINED, executed=(1, 2)))
    width = flow.noise_shape[1]
    channels = len(tiny_flow.CENTER)
    assert channels < width
    used = flow.place(torch.ones((1, 2, channels), dtype=torch.float64), normalise=False)
    assert used[0, 1:3, :channels].all()
    assert used.sum() == 2 * channels
    denoised = DiffusionPolicy(*_parts(), tiny.trained(8, executed=(1, 4)))
    used = denoised.place(torch.ones((1, 4, 2), dtype=torch.float64), normalise=False)
    assert used[0, 1:5].all()
    assert used.sum() == 8


def _parts() -> tuple[Any, ...]:
    policy = tiny.policy()
    return policy.encoder, policy.network, policy.sampler


def test_a_channel_that_never_moves_has_no_target_of_its_own() -> None:
    policy = DiffusionPolicy(*_parts(), tiny.trained(8, (0.0, 5.0), (2.0, 5.0)))
    placed = policy.place(torch.full((1, 8, 2), 5.0, dtype=torch.float64))
    assert torch.equal(placed[..., 1], torch.zeros_like(placed[..., 1]))
    assert torch.equal(placed[..., 0], torch.full_like(placed[..., 0], 4.0))


def test_nothing_is_left_for_a_backward_pass_and_no_weight_gets_a_gradient() -> None:
    policy = diffusion("ddim of clean actions")
    target = random_target(policy)
    with torch.no_grad():
        _, sample = generated(policy, "rtc", Guide(target, torch.full_like(target, 0.5)))
    assert not sample.requires_grad
    assert all(each.grad is None for each in policy.parameters())


def test_who_can_be_guided_says_so() -> None:
    assert isinstance(tiny.policy(), GuidablePolicy)
    assert isinstance(tiny_flow.tiny_flow(), GuidablePolicy)
    for other in (ActPolicy, AutoregressivePolicy):
        assert not all(hasattr(other, name) for name in ("predict", "clean", "advance", "flow_time", "place"))
