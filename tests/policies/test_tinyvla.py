"""TinyVLA as a policy: perception is the whole vision-language model, in blocks too; generation is Diffusion Policy's.

Guards: a block that loses the state; a camera, the prompt or the state that nobody looks at; an older instant that
somebody looks at; a sampler of other steps than the published ones.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from auras_ros.models.presets import TINYVLAS
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.policy import BlockPolicy, CausalPolicy, generate
from auras_ros.policies.tinyvla import TinyVlaPolicy, make_tinyvla
from auras_ros.policies.vision_language import random_ids
from tests.policies.test_capturable import OneDevice

TINY = TINYVLAS["tinyvla-tiny"]


@pytest.fixture(scope="module")
def policy() -> TinyVlaPolicy:
    return make_tinyvla("tinyvla-tiny", seed=0)


def observed(policy: TinyVlaPolicy, batch: int = 2, seed: int = 1) -> tuple[Tensor, Tensor]:
    return policy.example(batch, torch.Generator().manual_seed(seed))


def chain(policy: TinyVlaPolicy, *carried: Tensor) -> Tensor:
    for block in policy.perception_blocks():
        carried = block(*carried)
    (context,) = carried
    return context


def test_blocks_one_after_another_are_perceive_bit_for_bit(policy: TinyVlaPolicy) -> None:
    given = observed(policy)
    context = policy.perceive(*given)
    assert context.shape == (2, TINY.language.width)
    assert torch.equal(chain(policy, *given), context)


def test_perception_keeps_no_graph_of_weights_that_learn() -> None:
    policy = make_tinyvla("tinyvla-tiny", seed=0).requires_grad_(True)
    carried = observed(policy, 1)
    assert not policy.perceive(*carried).requires_grad
    for block in policy.perception_blocks():
        carried = block(*carried)  # type: ignore[assignment]
        assert not any(tensor.requires_grad for tensor in carried), block.name


def test_every_layer_is_a_block_and_the_state_goes_along_last(policy: TinyVlaPolicy) -> None:
    assert isinstance(policy, BlockPolicy)
    assert not isinstance(policy, CausalPolicy)
    blocks = policy.perception_blocks()
    seen = [f"vision.layers.{i}" for i in range(TINY.vision.built)]
    read = [f"language.layers.{i}" for i in range(TINY.language.layers)]
    assert [b.name for b in blocks] == ["newest", "vision.embed", *seen, "projector", "prompt", *read, "condition"]
    carried: tuple[Tensor, ...] = observed(policy)
    state = carried[1]
    for block in blocks[:-1]:
        carried = block(*carried)
        assert carried[-1] is state


def test_everything_that_is_observed_matters_and_nothing_older(policy: TinyVlaPolicy) -> None:
    images, state = observed(policy, 1)
    twice = images.repeat(1, 2, 1, 1, 1, 1), state.repeat(1, 2, 1)
    context = policy.perceive(*twice)
    assert torch.equal(context, policy.perceive(images, state))
    for tensor, place in ((0, (0, 1, 0)), (0, (0, 1, 1)), (1, (0, 1))):
        changed = [each.clone() for each in twice]
        changed[tensor][place] += 1
        assert (policy.perceive(changed[0], changed[1]) - context).abs().max() > 1e-3
        older = [each.clone() for each in twice]
        older[tensor][:, 0] += 1
        assert torch.equal(policy.perceive(older[0], older[1]), context)


def test_another_prompt_is_another_context() -> None:
    policy, ids = make_tinyvla("tinyvla-tiny", seed=0), random_ids(31, TINY.language.vocabulary, 9)
    given = observed(policy)
    before = policy.perceive(*given)
    policy.encoder.prefix.set_prompt(ids)
    assert (policy.perceive(*given) - before).abs().max() > 1e-3
    same = make_tinyvla("tinyvla-tiny", seed=0, prompt=(random_ids(1, TINY.language.vocabulary, 1), ids))
    assert torch.equal(policy.perceive(*given), same.perceive(*given))


def test_weights_are_there_once(policy: TinyVlaPolicy) -> None:
    names = list(policy.encoder.state_dict())
    assert sum(name.endswith("embed_in.weight") for name in names) == 1


def test_generation_is_ddim_as_published(policy: TinyVlaPolicy) -> None:
    assert policy.step.__func__ is DiffusionPolicy.step  # type: ignore[attr-defined]
    assert (policy.steps, policy.sampler.name, policy.sampler.prediction) == (10, "ddim", "epsilon")
    assert policy.sampler.timesteps.tolist() == list(range(90, -1, -10))
    assert policy.noise_shape == (1, 16, 10)
    noise = torch.randn(2, *policy.noise_shape, generator=torch.Generator().manual_seed(2))
    actions = generate(policy, noise, policy.perceive(*observed(policy)))
    assert actions.shape == (2, 16, 10)
    assert actions.dtype == torch.float64
    assert -1 <= actions.min() < actions.max() <= 1
    other = generate(policy, noise, policy.perceive(*observed(policy, seed=5)))
    assert (other - actions).abs().max() > 1e-3


def test_rows_are_independent(policy: TinyVlaPolicy) -> None:
    images, state = observed(policy, 3)
    together = policy.perceive(images, state)
    for row in range(3):
        one = slice(row, row + 1)
        torch.testing.assert_close(policy.perceive(images[one], state[one]), together[one], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", ["tinyvla-400m", "tinyvla-1.3b"])
def test_nothing_leaves_the_device(name: str) -> None:
    """At the published size, by blocks: what a CUDA graph would refuse fails here."""
    with torch.device("meta"):
        policy = make_tinyvla(name, seed=0).to("meta")
        images, state = torch.empty(2, 1, 2, 3, 336, 336), torch.empty(2, 1, 7)
        noise, index = torch.empty(2, *policy.noise_shape), torch.zeros(2, dtype=torch.int64)
    with OneDevice("meta") as watch:
        context = chain(policy, images, state)
        actions = policy.finish(policy.step(policy.begin(noise), context, index))
    assert context.shape == (2, TINYVLAS[name].language.width)
    assert actions.shape == (2, 16, 10)
    assert watch.calls > 100


def test_the_seed_makes_the_weights_and_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one, same, other = (make_tinyvla("tinyvla-tiny", seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    given = observed(one)
    assert torch.equal(one.perceive(*given), same.perceive(*given))
    assert not torch.equal(one.perceive(*given), other.perceive(*given))


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="policy 'tinyvla-7b' is not known; known: tinyvla-400m, tinyvla-700m"):
        make_tinyvla("tinyvla-7b", seed=0)
    with pytest.raises(ValueError, match="policy 'tinyvla-tiny': cameras: 0 is less than 1"):
        make_tinyvla("tinyvla-tiny", seed=0, cameras=0)
