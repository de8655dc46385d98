"""Perception in blocks is perception: the same context bit for bit, however many frames it is spread over.

Guards: a skip that is lost between two blocks; a state that does not go along with the images it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from auras_ros.policies.architectures import make_policy
from auras_ros.policies.denoising import make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from tests.policies import tiny


def keypoint_policy() -> tuple[DiffusionPolicy, tuple[Tensor, Tensor]]:
    encoder, network = tiny.lively_networks()
    policy = DiffusionPolicy(encoder, network, make_sampler("ddim", 2), tiny.trained(16, side=96)).eval()
    random = torch.Generator().manual_seed(0)
    return policy, (torch.randn(3, 2, 1, 3, 96, 96, generator=random), torch.randn(3, 2, 2, generator=random))


def resnet_policy() -> tuple[DiffusionPolicy, tuple[Tensor, Tensor]]:
    policy = make_policy("dp-small", seed=0)
    return policy, policy.example(3, torch.Generator().manual_seed(0))


def cameras_policy() -> tuple[DiffusionPolicy, tuple[Tensor, Tensor]]:
    policy, random = resnet_policy()[0], torch.Generator().manual_seed(0)
    return policy, (torch.randn(2, 2, 3, 3, 40, 40, generator=random), torch.randn(2, 2, 5, generator=random))


def whole_policy() -> tuple[DiffusionPolicy, tuple[Tensor, Tensor]]:
    """An encoder that cannot be cut."""
    policy, given = resnet_policy()
    whole = torch.nn.Sequential(policy.encoder)
    return DiffusionPolicy(whole, policy.network, policy.sampler, tiny.trained(10)), given


MAKERS: dict[str, tuple[Callable[[], tuple[DiffusionPolicy, tuple[Tensor, Tensor]]], int]] = {
    "keypoint": (keypoint_policy, 6),
    "resnet18": (resnet_policy, 10),
    "three cameras": (cameras_policy, 10),
    "whole": (whole_policy, 1),
}


def chain(policy: DiffusionPolicy, images: Tensor, state: Tensor) -> Tensor:
    carried: tuple[Tensor, ...] = (images, state)
    for block in policy.perception_blocks():
        carried = block(*carried)
    (context,) = carried
    return context


@pytest.mark.parametrize("maker", MAKERS)
def test_blocks_one_after_another_are_perceive(maker: str) -> None:
    make, count = MAKERS[maker]
    policy, (images, state) = make()
    assert len(policy.perception_blocks()) == count
    context = chain(policy, images, state)
    assert torch.equal(context, policy.perceive(images, state))
    assert not context.requires_grad
    changed = chain(policy, images + 0.5, state)
    assert (changed - context).abs().max() > 1e-4


@torch.no_grad()
def test_context_is_instant_by_instant_camera_by_camera_then_the_state() -> None:
    policy, (images, state) = cameras_policy()
    context = policy.perceive(images, state)
    assert context.shape == (2, 2 * (3 * 64 + 5))
    for row in range(2):
        expected = []
        for instant in range(2):
            expected += [policy.encoder(images[row, instant, camera][None])[0] for camera in range(3)]
            expected.append(state[row, instant])
        torch.testing.assert_close(context[row], torch.cat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("maker", MAKERS)
def test_names_are_unique_and_the_state_goes_along_last(maker: str) -> None:
    policy, carried = MAKERS[maker][0]()
    blocks = policy.perception_blocks()
    assert len({block.name for block in blocks}) == len(blocks)
    state = carried[1]
    for block in blocks[:-1]:
        carried = block(*carried)
        assert carried[-1] is state


@pytest.mark.parametrize("maker", MAKERS)
def test_shapes_between_blocks_depend_on_the_batch_alone(maker: str) -> None:
    policy, (images, state) = MAKERS[maker][0]()
    one: tuple[Tensor, ...] = (images, state)
    other: tuple[Tensor, ...] = (torch.randn_like(images) * 9, torch.randn_like(state))
    for block in policy.perception_blocks():
        one, other = block(*one), block(*other)
        assert [(t.shape, t.dtype) for t in one] == [(t.shape, t.dtype) for t in other]


def test_flops_of_the_published_encoder_are_those_of_its_convolutions() -> None:
    """Stages are made of equal FLOPs. ResNet18 at 224 px has 1.814 G multiply-adds (He et al. 2016: 1.8)."""
    with torch.device("meta"):
        policy = make_policy("dp", seed=0)
        carried: tuple[Tensor, ...] = (torch.empty(1, 1, 1, 3, 224, 224), torch.empty(1, 1, 2))
    flops = []
    for block in policy.perception_blocks():
        with FlopCounterMode(display=False) as counter:
            carried = block(*carried)
        flops.append(counter.get_total_flops())
    assert sum(flops) / 2 == pytest.approx(1.814e9, rel=0.01)
    assert flops[0] == 2 * 112 * 112 * 64 * 3 * 7 * 7
    assert flops[1] == flops[2] == 2 * 2 * 56 * 56 * 64 * 64 * 9
    assert flops[3] < flops[4]  # strided convolutions cost less
