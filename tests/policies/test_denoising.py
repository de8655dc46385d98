"""The samplers against the published schedule and a step-by-step implementation of the two papers' equations.

Guards: a wrong schedule; coefficients of another step; rows of one batch that influence each other.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from auras_ros.policies.denoising import (
    MAX_BETA,
    TRAINING_STEPS,
    Sampler,
    add_noise,
    make_sampler,
    squared_cosine_alphas,
)

SAMPLERS = [("ddim", 1), ("ddim", 2), ("ddim", 8), ("ddim", 100), ("ddpm", 100)]


def published_alphas() -> list[float]:
    """Nichol and Dhariwal 2021, eq. 17: f(t) / f(0), with the last beta capped at 0.999."""

    def f(t: float) -> float:
        return math.cos((t / TRAINING_STEPS + 0.008) / 1.008 * math.pi / 2) ** 2

    closed = [f(t) / f(0) for t in range(1, TRAINING_STEPS)]
    return [*closed, closed[-1] * (1 - 0.999)]


def naive(sampler: Sampler, noisy: Tensor, clean: Tensor, noise: Tensor, index: int) -> Tensor:
    """One step in float64 from the papers' equations, with the clean prediction clipped to [-1, 1]."""
    alphas = published_alphas()
    t = int(sampler.timesteps[index])
    after_t = int(sampler.timesteps[index + 1]) if index + 1 < sampler.steps else -1
    alpha, after = alphas[t], alphas[after_t] if after_t >= 0 else 1.0
    x, x0 = noisy.double(), clean.double().clamp(-1, 1)
    if sampler.name == "ddim":  # Song et al. 2021, eq. 12, sigma = 0
        predicted_noise = (x - math.sqrt(alpha) * x0) / math.sqrt(1 - alpha)
        return math.sqrt(after) * x0 + math.sqrt(1 - after) * predicted_noise
    beta = 1 - alpha / after  # Ho et al. 2020, eq. 6 and 7
    mean = math.sqrt(after) * beta / (1 - alpha) * x0 + math.sqrt(1 - beta) * (1 - after) / (1 - alpha) * x
    return mean + math.sqrt(beta * (1 - after) / (1 - alpha)) * noise.double()


def draws(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows)
    noisy, clean, noise = torch.randn(3, rows, 4, 2, generator=random)
    return noisy, clean, noise


def test_schedule_is_the_published_one() -> None:
    alphas = squared_cosine_alphas()
    assert alphas.dtype == torch.float64
    torch.testing.assert_close(alphas, torch.tensor(published_alphas(), dtype=torch.float64), rtol=1e-9, atol=0)


def test_schedule_falls_from_signal_to_noise() -> None:
    alphas = squared_cosine_alphas()
    assert (alphas[1:] < alphas[:-1]).all()
    assert alphas[0] > 0.999
    assert 0 < alphas[-1] < 1e-6
    assert 1 - float(alphas[-1] / alphas[-2]) == pytest.approx(MAX_BETA)


@pytest.mark.parametrize(("name", "steps"), SAMPLERS)
def test_every_step_equals_the_equations(name: str, steps: int) -> None:
    sampler = make_sampler(name, steps)  # type: ignore[arg-type]
    noisy, clean, noise = draws(1)
    for index in range(steps):
        got = sampler.step(noisy, clean, noise, torch.tensor([index]))
        expected = naive(sampler, noisy, clean, noise, index)
        torch.testing.assert_close(got.double(), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "steps"), SAMPLERS)
def test_last_step_returns_the_clean_actions(name: str, steps: int) -> None:
    sampler = make_sampler(name, steps)  # type: ignore[arg-type]
    noisy, clean, noise = draws(3)
    got = sampler.step(1e3 * noisy, clean, 1e3 * noise, torch.full((3,), steps - 1))
    torch.testing.assert_close(got, clean.clamp(-1, 1))


@pytest.mark.parametrize(("name", "steps"), SAMPLERS)
def test_timesteps_fall_from_the_noisiest(name: str, steps: int) -> None:
    timesteps = make_sampler(name, steps).timesteps.tolist()  # type: ignore[arg-type]
    assert timesteps[0] == TRAINING_STEPS - 1
    assert timesteps == sorted(set(timesteps), reverse=True)
    assert steps == 1 or timesteps[-1] == 0


@given(st.lists(st.integers(0, 99), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_rows_at_different_steps_equal_each_alone(steps: list[int]) -> None:
    sampler, index = make_sampler("ddpm", 100), torch.tensor(steps)
    noisy, clean, noise = draws(len(steps))
    together = sampler.step(noisy, clean, noise, index)
    for row in range(len(steps)):
        one = slice(row, row + 1)
        torch.testing.assert_close(together[one], sampler.step(noisy[one], clean[one], noise[one], index[one]))


def test_ddim_needs_no_noise() -> None:
    sampler = make_sampler("ddim", 8)
    noisy, clean, noise = draws(2)
    index = torch.tensor([0, 5])
    assert torch.equal(sampler.step(noisy, clean, None, index), sampler.step(noisy, clean, noise, index))


@pytest.mark.parametrize(("name", "steps", "length"), [("ddim", 8, 1), ("ddim", 100, 1), ("ddpm", 100, 100)])
def test_tape_length(name: str, steps: int, length: int) -> None:
    assert make_sampler(name, steps).tape_length == length  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "steps", "said"),
    [
        ("euler", 8, "'euler'"),
        ("ddim", 0, "got 0"),
        ("ddim", 101, "got 101"),
        ("ddim", -1, "got -1"),
        ("ddim", 8.0, "got 8.0"),
        ("ddim", True, "got True"),
        ("ddim", "8", "got '8'"),
        ("ddpm", 50, "got steps = 50; use ddim"),
    ],
)
def test_a_bad_name_or_number_of_steps_is_refused_by_name(name: str, steps: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_sampler(name, steps)  # type: ignore[arg-type]


def test_add_noise_keeps_unit_variance_and_each_rows_own_timestep() -> None:
    alphas = squared_cosine_alphas()
    clean, noise = torch.ones(2, 3, 2), torch.full((2, 3, 2), 2.0)
    got = add_noise(clean, noise, torch.tensor([0, 60]), alphas)
    for row, t in enumerate((0, 60)):
        share = published_alphas()[t]
        expected = math.sqrt(share) + 2 * math.sqrt(1 - share)
        torch.testing.assert_close(got[row], torch.full((3, 2), expected))


@pytest.mark.parametrize(("name", "steps"), [("ddpm", 100)])
def test_equals_diffusers_where_it_is_installed(name: str, steps: int) -> None:
    schedulers = pytest.importorskip("diffusers.schedulers")
    theirs = schedulers.DDPMScheduler(
        num_train_timesteps=TRAINING_STEPS, beta_schedule="squaredcos_cap_v2", prediction_type="sample"
    )
    ours = make_sampler(name, steps)  # type: ignore[arg-type]
    noisy, clean, _ = draws(1)
    for index, t in enumerate(ours.timesteps.tolist()):
        expected = theirs._get_variance(t) if t else torch.tensor(0.0)
        assert float(ours.to_noise[index]) ** 2 == pytest.approx(float(expected), rel=1e-3, abs=1e-8)
        mean = theirs.step(clean, t, noisy, generator=torch.Generator().manual_seed(t)).prev_sample
        noise = torch.randn(noisy.shape, generator=torch.Generator().manual_seed(t))
        torch.testing.assert_close(ours.step(noisy, clean, noise, torch.tensor([index])), mean, rtol=1e-3, atol=1e-4)
