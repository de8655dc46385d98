"""Diffusion Policy's four methods: shapes, units, and that batching changes nothing.

Guards: a context laid out otherwise than in training; a noise tape read from the wrong row; actions left normalised.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from auras_ros.pipeline.noise import noise_tape
from auras_ros.policies.denoising import DenoisingState
from auras_ros.policies.policy import generate
from tests.policies.tiny import LOWER, SIDE, UPPER, observed, policy

CLOSE: Any = {"rtol": 1e-4, "atol": 1e-4}


def tapes(shape: tuple[int, ...], batch: int) -> torch.Tensor:
    return torch.stack([noise_tape(shape, 7, request) for request in range(batch)])


@pytest.mark.parametrize(("sampler", "steps", "tape"), [("ddim", 4, 1), ("ddpm", 100, 100)])
def test_shapes(sampler: str, steps: int, tape: int) -> None:
    tiny = policy(sampler, steps)
    assert tiny.steps == steps
    assert tiny.noise_shape == (tape, 8, 2)
    context = tiny.perceive(*observed(3))
    assert context.shape == (3, 2 * (6 + 2))
    state = tiny.begin(tapes(tiny.noise_shape, 3))
    assert state.sample.shape == (3, 8, 2)
    after = tiny.step(state, context, torch.tensor([0, 1, 2]))
    assert after.sample.shape == (3, 8, 2)
    assert after.tape is state.tape
    actions = tiny.finish(after)
    assert actions.shape == (3, 8, 2)
    assert actions.dtype == torch.float64


def test_context_is_features_and_state_instant_by_instant() -> None:
    """Training concatenates (features, agent) of the earlier instant, then of the later one."""
    tiny = policy()
    images, state = observed(1)
    context = tiny.perceive(images, state)[0]
    for instant in range(2):
        part = context[instant * 8 : (instant + 1) * 8]
        torch.testing.assert_close(part[:6], tiny.encoder(images[0, instant])[0].detach(), **CLOSE)
        torch.testing.assert_close(part[6:], state[0, instant])


@pytest.mark.parametrize(("sampler", "steps"), [("ddim", 4), ("ddpm", 100)])
def test_generate_equals_the_loop_written_out(sampler: str, steps: int) -> None:
    tiny = policy(sampler, steps)
    context, noise = tiny.perceive(*observed(1)), tapes(tiny.noise_shape, 1)
    sample, table = noise[:, 0], tiny.sampler
    for i in range(steps):
        with torch.no_grad():
            clean = tiny.network(sample, table.timesteps[i : i + 1], context).clamp(-1, 1)
        sample = table.to_clean[i] * clean + table.to_noisy[i] * sample
        if sampler == "ddpm" and i + 1 < steps:
            sample = sample + table.to_noise[i] * noise[:, 1 + i]
    lower, upper = torch.tensor(LOWER), torch.tensor(UPPER)
    expected = (sample + 1) / 2 * (upper - lower) + lower
    torch.testing.assert_close(generate(tiny, noise, context).float(), expected, **CLOSE)


@pytest.mark.parametrize(("sampler", "steps"), [("ddim", 4), ("ddpm", 100)])
def test_a_batch_of_two_equals_two_singles(sampler: str, steps: int) -> None:
    """In float64: a hundred steps of untrained networks blow the rounding of float32 up beyond any tolerance."""
    tiny = policy(sampler, steps).double()
    images, state = (tensor.double() for tensor in observed(2))
    noise = tapes(tiny.noise_shape, 2).double()
    together = generate(tiny, noise, tiny.perceive(images, state))
    assert (together[0] - together[1]).abs().max() > 1
    for row in range(2):
        one = slice(row, row + 1)
        alone = generate(tiny, noise[one], tiny.perceive(images[one], state[one]))
        torch.testing.assert_close(together[one], alone, rtol=0, atol=1e-6)


def test_rows_at_different_steps_equal_each_alone() -> None:
    tiny = policy("ddpm", 100)
    context, index = tiny.perceive(*observed(3)), torch.tensor([0, 42, 99])
    state = tiny.begin(tapes(tiny.noise_shape, 3))
    together = tiny.step(state, context, index).sample
    for row in range(3):
        one = slice(row, row + 1)
        alone = tiny.step(DenoisingState(state.sample[one], state.tape[one]), context[one], index[one])
        torch.testing.assert_close(together[one], alone.sample, **CLOSE)


def test_each_ddpm_step_draws_its_own_row_of_the_tape() -> None:
    tiny = policy("ddpm", 100)
    context, noise = tiny.perceive(*observed(1)), tapes(tiny.noise_shape, 1)
    for step in (0, 17, 98):
        changed = noise.clone()
        changed[:, step + 1] += 1
        a = tiny.step(tiny.begin(noise), context, torch.tensor([step])).sample
        b = tiny.step(tiny.begin(changed), context, torch.tensor([step])).sample
        torch.testing.assert_close(b - a, tiny.sampler.to_noise[step].expand(1, 8, 2), **CLOSE)


def test_minus_one_and_one_are_the_bounds_in_physical_units() -> None:
    tiny = policy()
    sample = torch.tensor([-1.0, 0.0, 1.0])[None, :, None].expand(1, 3, 2)
    actions = tiny.finish(DenoisingState(sample, sample))[0]
    middle = [(low + high) / 2 for low, high in zip(LOWER, UPPER, strict=True)]
    assert actions.tolist() == [list(LOWER), middle, list(UPPER)]


def test_images_of_another_size_still_make_a_context_of_the_same_shape() -> None:
    """The encoder is convolutional: that the frames have the trained size is for preprocessing to hold."""
    images = torch.randn(1, 2, 1, 3, 2 * SIDE, SIDE)
    assert policy().perceive(images, torch.zeros(1, 2, 2)).shape == (1, 16)
