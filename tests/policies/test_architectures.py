"""The published architectures: their sizes against the table, their shapes, and that a seed fixes the weights.

Guards: a "DP" of another size than the paper's, on which every measured ratio would rest.
"""

from __future__ import annotations

import pytest
import torch

from auras_ros.pipeline.noise import noise_tape
from auras_ros.policies.architectures import RECIPES, make_policy
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.networks import build_encoder
from auras_ros.policies.policy import generate

# Name: (encoder, network, the published size in millions, whether that counts the encoder). Auras section 5.1 gives
# half-precision megabytes: 40, 505, 182 and 527; those of the U-Nets are their noise networks alone.
SIZES = {
    "dp": (11_197_088, 8_975_362, 20, True),
    "dp-plus": (11_197_088, 80_590_868, 92, True),
    "dp-cnn": (11_197_088, 251_511_938, 252, False),
    "dp-cnn-plus": (11_197_088, 263_504_020, 264, False),
    "dp-small": (710_384, 1_201_154, None, True),
    "dp-cnn-small": (710_384, 1_344_866, None, True),
}
CONDITIONS = {"dp": 132, "dp-cnn": 132, "dp-plus": 548, "dp-cnn-plus": 548, "dp-small": 132, "dp-cnn-small": 132}


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def on_meta(name: str, **options: object) -> DiffusionPolicy:
    """Shapes without values: 260 million parameters cost nothing."""
    with torch.device("meta"):
        return make_policy(name, seed=0, **options)  # type: ignore[arg-type]


def test_every_recipe_has_its_size_here() -> None:
    assert SIZES.keys() == RECIPES.keys() == CONDITIONS.keys()


@pytest.mark.parametrize("name", SIZES)
def test_number_of_parameters(name: str) -> None:
    encoder, network, millions, whole = SIZES[name]
    policy = on_meta(name)
    assert (parameters(policy.encoder), parameters(policy.network)) == (encoder, network)
    if millions is not None:
        assert (encoder if whole else 0) + network == pytest.approx(millions * 1e6, rel=0.01)
        assert encoder + network == pytest.approx(millions * 1e6, rel=0.05)


@pytest.mark.parametrize("name", SIZES)
def test_shapes_from_images_to_chunk(name: str) -> None:
    policy = on_meta(name)
    shape = policy.architecture
    assert shape is not None
    assert shape.name == name
    with torch.device("meta"):
        images, state = policy.example(3)
        noise = torch.empty(3, *policy.noise_shape)
        index = torch.zeros(3, dtype=torch.int64)
    assert images.shape == (3, 2, shape.cameras, 3, *shape.image_px)
    context = policy.perceive(images, state)
    assert context.shape == (3, CONDITIONS[name])
    actions = policy.finish(policy.step(policy.begin(noise), context, index))
    assert actions.shape == (3, shape.horizon, shape.actions)
    assert actions.dtype == torch.float64


@pytest.mark.parametrize("name", ["dp-small", "dp-cnn-small"])
def test_a_small_policy_runs_and_its_actions_are_in_bounds(name: str) -> None:
    policy = make_policy(name, seed=3, sampler="ddim", steps=2)
    images, state = policy.example(2, torch.Generator().manual_seed(0))
    noise = torch.stack([noise_tape(policy.noise_shape, 0, request) for request in range(2)])
    actions = generate(policy, noise, policy.perceive(images, state))
    assert actions.isfinite().all()
    assert actions.abs().max() <= 1
    assert (actions[0] - actions[1]).abs().max() > 1e-3
    assert not any(p.requires_grad for p in policy.parameters())
    assert not policy.training


def test_a_seed_fixes_the_weights_and_leaves_the_callers_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (make_policy("dp-small", seed=seed).state_dict() for seed in (7, 7, 8))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["encoder.backbone.conv1.weight"], other["encoder.backbone.conv1.weight"])
    assert not torch.equal(one["network.pos_emb"], other["network.pos_emb"])


def test_a_seed_fixes_the_example() -> None:
    policy = on_meta("dp-plus")
    one, same = (policy.example(1, torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(one[0], same[0])
    assert torch.equal(one[1], same[1])
    assert float(one[0].std()) == pytest.approx(1, abs=0.1)  # random values, never zeros


@pytest.mark.parametrize("steps", [40, 100, 160])
def test_ddpm_counts_as_trained_with_the_steps_it_runs(steps: int) -> None:
    sampler = on_meta("dp", steps=steps).sampler
    assert (sampler.name, sampler.steps, sampler.prediction) == ("ddpm", steps, "epsilon")
    assert make_policy("dp-small", seed=0, steps=steps).sampler.timesteps[0] == steps - 1


def test_ddim_counts_as_trained_with_a_hundred() -> None:
    assert make_policy("dp-small", seed=0, sampler="ddim", steps=10).sampler.timesteps.tolist() == [*range(90, -1, -10)]


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="policy 'dp-huge' is not known; known: dp, dp-cnn"):
        make_policy("dp-huge", seed=0)


def test_a_policy_without_an_architecture_has_no_example() -> None:
    policy, encoder = on_meta("dp-small"), build_encoder({"type": "resnet18", "width": 16})
    bare = DiffusionPolicy(encoder, policy.network, policy.sampler, 10, torch.zeros(2), torch.ones(2))
    with pytest.raises(ValueError, match="without an architecture"):
        bare.example(1)
